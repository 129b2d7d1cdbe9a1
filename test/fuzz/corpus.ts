/** What is mutated: the golden vectors, and messages, rows and texts that the property tests generate. */
import fc from 'fast-check';
import { encodeMessage } from '../../src/protocol/message.ts';
import { encodeRound } from '../../src/protocol/msgpack/messages.ts';
import type { CodecColumn } from '../../src/protocol/row-codec.ts';
import { compileRowCodec } from '../../src/protocol/row-codec.ts';
import { jsonText, message } from '../protocol/arbitraries.ts';
import { msgpackVectors, partsOf, requestFrames, SCHEMA } from '../protocol/msgpack/samples.ts';
import { rowArbitrary } from '../protocol/row-arbitraries.ts';
import { invalidCases, realtimeCases, validCases } from '../protocol/vectors.ts';

export interface RowSample {
  readonly columns: readonly CodecColumn[];
  readonly bytes: Uint8Array;
}

export interface Corpus {
  readonly messages: readonly Uint8Array[];
  readonly segments: readonly Uint8Array[];
  readonly rows: readonly RowSample[];
  readonly msgpacks: readonly Uint8Array[];
  readonly controls: readonly string[];
  readonly jsons: readonly string[];
}

const GENERATED_MESSAGES = 300;
const GENERATED_ROWS = 100;
const GENERATED_TEXTS = 100;

const CONTROLS = [
  '{"type":"ack","cursor":12}',
  '{"event":"heartbeat","data":{"timestamp":1782993600000}}',
  '{"event":"presence","data":{"scopeKey":"project:p1","error":"presence.too_large","timestamp":1}}',
  '{"event":"presence","data":{"scopeKey":"project:p1","doc":null}}',
  '{"event":"later","data":{}}',
];

const DETAILS = [
  '{"fieldPaths":["a.b","c"],"reason":"over-quota","requiredAction":"pay","references":{"invoice":"I-1","x":"y"}}',
  '{"references":{"a":"é"}, "reason":"x"}',
];

export function buildCorpus(seed: number): Corpus {
  const sample = <T>(arbitrary: fc.Arbitrary<T>, numRuns: number): T[] =>
    fc.sample(arbitrary, { seed, numRuns });
  const realtime = realtimeCases();
  const vectors = [...validCases('request'), ...validCases('response')];
  const broken = [...invalidCases('request'), ...invalidCases('response')];
  const rows = sample(rowArbitrary, GENERATED_ROWS);
  return {
    messages: [
      ...[...vectors, ...broken].map(({ bytes }) => bytes),
      ...sample(message, GENERATED_MESSAGES).map(encodeMessage),
    ],
    segments: [...validCases('segment'), ...invalidCases('segment')].map(({ bytes }) => bytes),
    rows: rows.map(({ columns, values }) => ({ columns, bytes: compileRowCodec(columns).encode(values) })),
    msgpacks: [
      ...msgpackVectors(),
      ...sample(requestFrames, GENERATED_MESSAGES / 3).map((frames) =>
        encodeRound(1, partsOf(frames), SCHEMA),
      ),
    ],
    controls: [...[...realtime.valid, ...realtime.invalid].map(({ text }) => text), ...CONTROLS],
    jsons: [...DETAILS, ...sample(jsonText, GENERATED_TEXTS)],
  };
}
