/** Reads a whole request body under bounds of size and time (architecture §6). */
import type { Clock } from '../protocol/clock.ts';
import { SyncError } from '../protocol/errors.ts';
import { decodeRequestBody } from './content-coding.ts';
import type { HttpRequest } from './http-message.ts';

export interface BodyBounds {
  /** Of the decoded body: a small gzip body may not become a large one. */
  readonly bytesMax: number;
  readonly timeoutMs: number;
  readonly clock: Clock;
}

function tooLarge(bytesMax: number): SyncError {
  return new SyncError('sync.invalid_request', 'the request body is too large', {
    httpStatus: 413,
    details: { bytesMax },
  });
}

/** Throws a `SyncError` with status 400, 408, 413 or 415; rethrows what the transport throws when the client leaves. */
export async function readRequestBody(request: HttpRequest, bounds: BodyBounds): Promise<Uint8Array> {
  // The declared length is of the encoded body, which is never meant to be larger than the decoded one.
  if (Number(request.headers.get('content-length') ?? 0) > bounds.bytesMax) throw tooLarge(bounds.bytesMax);
  const deadline = startDeadline(bounds);
  try {
    const encoded = withinBounds(request.body, { bytesMax: bounds.bytesMax, late: deadline.late });
    const decoded = decodeRequestBody(encoded, request.headers.get('content-encoding'));
    return await concatenate(decoded, bounds.bytesMax);
  } finally {
    deadline.cancel();
  }
}

interface Deadline {
  /** Rejects when the time is over; never resolves. */
  readonly late: Promise<never>;
  cancel(): void;
}

function startDeadline({ timeoutMs, clock }: BodyBounds): Deadline {
  let expire: (reason: SyncError) => void = () => undefined;
  const late = new Promise<never>((_, reject) => {
    expire = reject;
  });
  // Whoever races against it sees the rejection; nobody does when the body ended first.
  late.catch(() => undefined);
  const timer = clock.after(timeoutMs, () => {
    expire(
      new SyncError('sync.invalid_request', 'the request body did not arrive in time', { httpStatus: 408 }),
    );
  });
  return { late, cancel: () => timer.cancel() };
}

async function* withinBounds(
  source: AsyncIterable<Uint8Array>,
  { bytesMax, late }: { readonly bytesMax: number; readonly late: Promise<never> },
): AsyncGenerator<Uint8Array, void, undefined> {
  const chunks = source[Symbol.asyncIterator]();
  let bytes = 0;
  for (;;) {
    const step = await Promise.race([chunks.next(), late]);
    if (step.done) return;
    bytes += step.value.byteLength;
    if (bytes > bytesMax) throw tooLarge(bytesMax);
    yield step.value;
  }
}

async function concatenate(source: AsyncIterable<Uint8Array>, bytesMax: number): Promise<Uint8Array> {
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  for await (const chunk of source) {
    bytes += chunk.byteLength;
    if (bytes > bytesMax) throw tooLarge(bytesMax);
    chunks.push(chunk);
  }
  const whole = new Uint8Array(bytes);
  let offset = 0;
  for (const chunk of chunks) {
    whole.set(chunk, offset);
    offset += chunk.byteLength;
  }
  return whole;
}
