/** A failed round as frames (§1.6, §8.7): `ERROR` with the catalogue's metadata, then only `END` (S-018). */
import type { SyncError } from '../../protocol/errors.ts';
import { FrameWriter } from '../../protocol/frame-writer.ts';
import type { ErrorFrame, WireVersion } from '../../protocol/frames.ts';

export interface ErrorStreamHeader {
  /** Of the request. */
  readonly wireVersion: WireVersion;
  /** Current epoch of the partition; written in wire version 2, where clients check it before they read on. */
  readonly logEpoch: string;
}

export function errorFrame(error: SyncError): ErrorFrame {
  const { details, ...body } = error.toBody();
  const frame = { type: 'ERROR', ...body } as const;
  return details === undefined ? frame : { ...frame, details: JSON.stringify(details) };
}

/** The whole response of a round that failed before its first chunk: `RESP_HEADER`, `ERROR`, `END`. */
export function errorStream(error: SyncError, { wireVersion, logEpoch }: ErrorStreamHeader): Uint8Array {
  const writer = new FrameWriter(wireVersion);
  writer.envelope('response');
  writer.frame({ type: 'RESP_HEADER', logEpoch, resetRequired: false });
  writer.frame(errorFrame(error));
  writer.end();
  return writer.take();
}
