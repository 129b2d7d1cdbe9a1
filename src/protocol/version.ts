/** Wire versions (§9, part 1.12): which are spoken, and what changed between them. */
import type { WireVersion } from './frames.ts';

export interface WireVersionEntry {
  readonly version: WireVersion;
  readonly change: string;
  /** What a peer of this version is told, and when it is refused. */
  readonly served: string;
}

/**
 * Any change of a frame's layout, a record field, a primitive or the frame order is a new entry here. Frames that may be
 * ignored safely are added without one.
 */
export const WIRE_HISTORY: readonly WireVersionEntry[] = [
  {
    version: 1,
    change: 'First version.',
    served: 'Until the log epoch of the partition was rotated; then sync.client_wire_unsupported.',
  },
  {
    version: 2,
    change: 'Log epochs: REQ_HEADER has logEpoch; RESP_HEADER has logEpoch and resetRequired.',
    served: 'Always.',
  },
];

/** Extending the window upward comes before its lower end is raised. */
export const WIRE_VERSION_MIN: WireVersion = 1;
export const WIRE_VERSION_MAX: WireVersion = 2;
/** What a client of this library writes. */
export const CURRENT_WIRE_VERSION: WireVersion = WIRE_VERSION_MAX;

export function isWireVersion(version: number): version is WireVersion {
  return version === 1 || version === 2;
}
