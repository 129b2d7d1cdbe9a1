/** The MessagePack dialect at the edge of HTTP (§5.1): one `round` message in, the `frame` messages of its answer out. */
import { decodeError } from '../protocol/bytes.ts';
import type { Limits } from '../protocol/limits.ts';
import { decodeClientMessage } from '../protocol/msgpack/messages.ts';
import { readRequest } from '../protocol/msgpack/request.ts';
import { MsgpackResponse } from '../protocol/msgpack/response.ts';
import type { CompiledSchema } from '../protocol/schema.ts';
import type { RequestDecoder } from '../session/sync/admission.ts';
import { msgpackBounds } from './msgpack-socket.ts';
import { NEVER_SERVED, type Round } from './round-body.ts';

export interface MsgpackRoundDeps {
  readonly schema: CompiledSchema;
  readonly limits: Limits;
  /** The round of the core, told how to read the request. */
  readonly run: (decode: RequestDecoder) => Round;
}

/** Fails as the core's round does, and with `sync.invalid_request` for a body that is no `round` message. */
export async function* msgpackRound({ schema, limits, run }: MsgpackRoundDeps): Round {
  let response: MsgpackResponse | null = null;
  const round = run((body) => {
    const message = decodeClientMessage(body, msgpackBounds(limits));
    if (message.kind !== 'round') throw decodeError('the body is no round message');
    const read = readRequest(message.req, { schema, limits });
    response = new MsgpackResponse({ schema, id: message.id, round: read });
    return read.request;
  });
  const translated = (chunk: Uint8Array): Uint8Array => Buffer.concat(response?.push(chunk) ?? []);
  try {
    for (;;) {
      const step = await round.next();
      if (step.done === true) return { ...step.value, finalChunk: translated(step.value.finalChunk) };
      const bytes = translated(step.value);
      if (bytes.length > 0) yield bytes;
    }
  } finally {
    await round.return(NEVER_SERVED);
  }
}
