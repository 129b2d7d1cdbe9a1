/** Builds one page of a bootstrap out of stored rows (§4.7, §5.2). */

import type { ScopeMap } from '../../protocol/frames.ts';
import type { CompiledTable } from '../../protocol/schema.ts';
import { SegmentWriter } from '../../protocol/segment.ts';
import type { SegmentKey } from '../../storage/segments.ts';
import type { SnapshotReader } from '../../storage/storage.ts';
import type { PullMeter } from './pull-meter.ts';
import { BuiltPage } from './segment-page.ts';
import type { SyncDeps } from './sync-deps.ts';

/** Most pages of windowed clients are small; a large one grows its buffer a few times. */
const CAPACITY_BYTES = 4 * 1024;

export interface PageBuild {
  /** `rowCursor` and `rowsMax` say which rows; the page may end earlier, at `segmentBytesMax`. */
  readonly key: SegmentKey;
  readonly table: CompiledTable;
  readonly scopes: ScopeMap;
  readonly reader: SnapshotReader;
  readonly meter: PullMeter;
}

/**
 * Reads the current rows, block by block, and copies their payloads verbatim. Rows younger than the pin are fine: the log
 * replay from the pin heals the rest (part 2.24 decision 5).
 */
export async function buildPage(build: PageBuild, deps: SyncDeps): Promise<BuiltPage> {
  const { key, table, scopes, reader, meter } = build;
  const { limits } = deps;
  const writer = segmentWriter(key, table, deps);
  let afterRowId = key.rowCursor;
  for (;;) {
    const page = await reader.readRowPage({
      table,
      scopes,
      afterRowId,
      rowsMax: Math.min(key.rowsMax - writer.rowCount, limits.segmentBlockRows),
      bytesMax: Math.min(limits.segmentBytesMax - writer.byteLength, limits.segmentBlockBytes),
    });
    const before = writer.byteLength;
    for (const { serverVersion, payload } of page.rows) writer.addRow(serverVersion, payload);
    meter.read(writer.byteLength - before);
    afterRowId = page.nextRowId;
    const isFull = writer.rowCount >= key.rowsMax || writer.byteLength >= limits.segmentBytesMax;
    if (afterRowId === null || isFull) break;
    await meter.breathe();
  }
  const { bytes, rowCount } = writer.finish();
  const { partition } = key;
  deps.events.emit({
    type: 'segment.built',
    partition,
    table: table.name,
    rows: rowCount,
    bytes: bytes.length,
  });
  return new BuiltPage({ key, bytes, rowCount, nextRowCursor: afterRowId }, deps);
}

/**
 * A first page without rows: the client clears its scope for it and nothing else happens (part 2.24 decision 4).
 * `key.rowsMax` is 0, so it is never taken for a page that was read.
 */
export function emptyPage(key: SegmentKey, table: CompiledTable, deps: SyncDeps): BuiltPage {
  const { bytes } = segmentWriter(key, table, deps).finish();
  return new BuiltPage({ key, bytes, rowCount: 0, nextRowCursor: null }, deps);
}

function segmentWriter(key: SegmentKey, table: CompiledTable, { limits }: SyncDeps): SegmentWriter {
  const header = { table: table.name, schemaVersion: key.schemaVersion, columns: table.columns };
  return new SegmentWriter(header, limits, CAPACITY_BYTES);
}
