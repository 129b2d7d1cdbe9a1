/** The loop: one input per index, made from (seed, index) alone, so that any of them can be run again by itself. */
import { buildCorpus, type Corpus } from './corpus.ts';
import { AllocationMeter } from './meter.ts';
import { mutateBytes, mutateFrames, mutateText } from './mutate.ts';
import { Prng } from './prng.ts';
import {
  fuzzControl,
  fuzzJson,
  fuzzMessage,
  fuzzMsgpack,
  fuzzReader,
  fuzzRow,
  fuzzScanner,
  fuzzSegment,
} from './targets.ts';

export interface FuzzOptions {
  readonly seed: number;
  readonly count: number;
  /** First index; default 0. */
  readonly from?: number;
  /** Told each index before its input is run: what a watchdog names when nothing comes back. */
  readonly onIndex?: (index: number) => void;
}

export interface FuzzFailure {
  readonly seed: number;
  readonly index: number;
  readonly target: string;
  readonly inputHex: string;
  readonly failure: string;
}

export interface FuzzReport {
  readonly inputs: number;
  /** Messages that were damaged and decoded all the same: low means that the damage is too coarse. */
  readonly accepted: number;
  readonly failure: FuzzFailure | null;
}

type Input =
  | { readonly target: 'message'; readonly bytes: Uint8Array }
  | { readonly target: 'segment'; readonly bytes: Uint8Array }
  | { readonly target: 'msgpack'; readonly bytes: Uint8Array }
  | { readonly target: 'row'; readonly bytes: Uint8Array; readonly sample: number }
  | { readonly target: 'control'; readonly text: string }
  | { readonly target: 'json'; readonly text: string };

function makeInput(corpus: Corpus, prng: Prng): Input {
  const lot = prng.below(100);
  if (lot < 10) return { target: 'control', text: mutateText(prng.pick(corpus.controls), prng) };
  if (lot < 20) return { target: 'json', text: mutateText(prng.pick(corpus.jsons), prng) };
  if (lot < 30) return { target: 'segment', bytes: mutateBytes(prng.pick(corpus.segments), prng) };
  if (lot < 40) {
    const sample = prng.below(corpus.rows.length);
    return { target: 'row', bytes: mutateBytes(corpus.rows[sample]!.bytes, prng), sample };
  }
  if (lot < 50) return { target: 'msgpack', bytes: mutateBytes(prng.pick(corpus.msgpacks), prng) };
  const message = prng.pick(corpus.messages);
  const blind = lot < 67;
  return {
    target: 'message',
    bytes: blind ? mutateBytes(message, prng) : mutateFrames(message, prng.pick(corpus.messages), prng),
  };
}

/** Answers whether a message was accepted. */
function runInput(corpus: Corpus, input: Input, prng: Prng): boolean {
  switch (input.target) {
    case 'control':
      fuzzControl(input.text);
      return false;
    case 'json':
      fuzzJson(input.text);
      return false;
    case 'segment':
      fuzzSegment(input.bytes);
      return false;
    case 'msgpack':
      return fuzzMsgpack(input.bytes, prng);
    case 'row':
      fuzzRow({ columns: corpus.rows[input.sample]!.columns, bytes: input.bytes });
      return false;
    case 'message':
      fuzzScanner(input.bytes, prng);
      fuzzReader(input.bytes, prng);
      return fuzzMessage(input.bytes);
  }
}

function bytesOf(input: Input): Uint8Array {
  return 'bytes' in input ? input.bytes : new Uint8Array(Buffer.from(input.text));
}

function describeFailure(input: Input, failure: unknown): Omit<FuzzFailure, 'seed' | 'index'> {
  return {
    target: input.target,
    inputHex: Buffer.from(bytesOf(input)).toString('hex'),
    failure: failure instanceof Error ? (failure.stack ?? failure.message) : String(failure),
  };
}

/** Stops at the first failure. */
export function runFuzz({ seed, count, from = 0, onIndex }: FuzzOptions): FuzzReport {
  const corpus = buildCorpus(seed);
  const meter = new AllocationMeter();
  let accepted = 0;
  meter.install();
  try {
    for (let index = from; index < from + count; index++) {
      const prng = new Prng(seed, index);
      const input = makeInput(corpus, prng);
      onIndex?.(index);
      try {
        meter.begin();
        if (runInput(corpus, input, prng)) accepted++;
        const fault = meter.judge(bytesOf(input).length);
        if (fault !== null) throw new Error(fault);
      } catch (failure) {
        const inputs = index - from + 1;
        return { inputs, accepted, failure: { seed, index, ...describeFailure(input, failure) } };
      }
    }
  } finally {
    meter.remove();
  }
  return { inputs: count, accepted, failure: null };
}
