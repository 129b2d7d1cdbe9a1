/** Requests of clients of the test schema. Wire version 1 unless a log epoch is given: it needs no epoch. */
import type { RequestFrame, ResponseFrame } from '../../../src/protocol/frames.ts';
import { decodeMessage, encodeMessage } from '../../../src/protocol/message.ts';
import { rowCodecOf } from '../../../src/protocol/row-codec.ts';
import { compileSchema } from '../../../src/protocol/schema-compiler.ts';
import type { SchemaDocument } from '../../../src/protocol/schema-document.ts';
import { call } from './http-client.ts';

export const SCHEMA: SchemaDocument = {
  version: 3,
  tables: [
    {
      name: 'notes',
      primaryKey: 'id',
      columns: [
        { name: 'id', type: 'string' },
        { name: 'project', type: 'string' },
        { name: 'title', type: 'string' },
      ],
      scopes: ['project:{project}'],
    },
  ],
};

interface Common {
  readonly clientId?: string;
  readonly schemaVersion?: number;
  readonly logEpoch?: string;
}

interface Pull extends Common {
  readonly projects?: readonly string[];
  readonly table?: string;
  readonly cursor?: number;
  readonly accept?: number;
  readonly subscriptionIds?: readonly string[];
}

interface Push extends Common {
  readonly rowId: string;
  readonly project?: string;
  readonly title?: string;
  readonly table?: string;
  readonly clientCommitId?: string;
}

export function encodeRequest(common: Common, frames: readonly RequestFrame[]): Uint8Array {
  const { clientId = 'client-1', schemaVersion = SCHEMA.version, logEpoch } = common;
  const header: RequestFrame = {
    type: 'REQ_HEADER',
    clientId,
    schemaVersion,
    ...(logEpoch === undefined ? {} : { logEpoch }),
  };
  return encodeMessage({
    kind: 'request',
    wireVersion: logEpoch === undefined ? 1 : 2,
    frames: [header, ...frames],
  });
}

function pull(options: Pull = {}): Uint8Array {
  const {
    projects = ['shared'],
    table = 'notes',
    cursor = -1,
    accept = 3,
    subscriptionIds = ['s1'],
  } = options;
  return encodeRequest(options, [
    { type: 'PULL_HEADER', limitCommits: 0, limitSnapshotRows: 0, maxSnapshotPages: 0, accept },
    ...subscriptionIds.map(
      (id): RequestFrame => ({ type: 'SUBSCRIPTION', id, table, scopes: { project: projects }, cursor }),
    ),
  ]);
}

function push(options: Push): Uint8Array {
  const { rowId, project = 'shared', title = 'a title', table = 'notes' } = options;
  const payload = rowCodecOf(compileSchema(SCHEMA).tables[0]!).encode([rowId, project, title]);
  const clientCommitId = options.clientCommitId ?? `commit-${rowId}`;
  return encodeRequest(options, [
    { type: 'PUSH_COMMIT', clientCommitId, operations: [{ table, rowId, op: 'upsert', payload }] },
  ]);
}

/** A push and a pull in one request. */
function mixed(options: Push & Pull): Uint8Array {
  const framesOf = (bytes: Uint8Array): readonly RequestFrame[] => {
    const message = decodeMessage(bytes);
    if (message.kind !== 'request') throw new Error('not a request');
    return message.frames.filter(({ type }) => type !== 'REQ_HEADER');
  };
  return encodeRequest(options, [...framesOf(push(options)), ...framesOf(pull(options))]);
}

export const ada = { pull, push, mixed };

export function frames(response: Uint8Array): readonly ResponseFrame[] {
  const message = decodeMessage(new Uint8Array(response));
  if (message.kind !== 'response') throw new Error('not a response');
  return message.frames;
}

export function frameOf<Type extends ResponseFrame['type']>(
  response: Uint8Array,
  type: Type,
): Extract<ResponseFrame, { readonly type: Type }> {
  const found = frames(response).find((frame) => frame.type === type);
  if (found === undefined) throw new Error(`no ${type} in the response`);
  return found as Extract<ResponseFrame, { readonly type: Type }>;
}

export const SSP2_HEADERS = { 'content-type': 'application/vnd.syncular.sync.v2' };

export function postSync(
  url: string,
  body: Uint8Array,
  {
    token = 'token-ada',
    headers = {},
  }: { readonly token?: string; readonly headers?: Record<string, string> } = {},
) {
  return call(`${url}/sync`, {
    method: 'POST',
    headers: { ...SSP2_HEADERS, authorization: `Bearer ${token}`, ...headers },
    body,
  });
}
