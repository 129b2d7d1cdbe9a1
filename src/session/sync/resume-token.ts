/**
 * The resume token of an unfinished bootstrap (§4.7, part 2.10). A client hands it back untouched, yet anybody can write
 * one: it only ever chooses where a page starts, never what may be read.
 */
import { isStorableText } from '../../storage/storable-values.ts';

export interface ResumeToken {
  /** The pin. */
  readonly asOfCommitSeq: number;
  /** Always the one table of the subscription in tokens of ours. */
  readonly tables: readonly string[];
  readonly tableIndex: number;
  /** Last row delivered; `null` shows that no row was. */
  readonly rowCursor: string | null;
  /** Of the effective scopes at the pin: others need another snapshot (part 2.24 decision 6). */
  readonly scopeDigest: string;
  /** As in `SegmentKey` (part 2.24 decision 7). */
  readonly paramsDigest: string;
}

export function encodeResumeToken(token: ResumeToken): string {
  const { asOfCommitSeq, tables, tableIndex, rowCursor, scopeDigest, paramsDigest } = token;
  return JSON.stringify({ asOfCommitSeq, tables, tableIndex, rowCursor, scopeDigest, paramsDigest });
}

/** `null`: unusable, which is never an error (S-071). Additional members are ignored. */
export function parseResumeToken(text: string, unitsMax: number): ResumeToken | null {
  if (text.length > unitsMax) return null;
  const value = parseJson(text);
  if (typeof value !== 'object' || value === null) return null;
  const { asOfCommitSeq, tables, tableIndex, rowCursor, scopeDigest, paramsDigest } = value as Partial<
    Record<keyof ResumeToken, unknown>
  >;
  if (!isIndex(asOfCommitSeq) || !isIndex(tableIndex)) return null;
  if (!isTexts(tables) || tableIndex >= tables.length) return null;
  // What no row id can be cannot be looked up either.
  if (rowCursor !== null && (typeof rowCursor !== 'string' || !isStorableText(rowCursor))) return null;
  if (typeof scopeDigest !== 'string' || typeof paramsDigest !== 'string') return null;
  return { asOfCommitSeq, tables, tableIndex, rowCursor, scopeDigest, paramsDigest };
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

function isIndex(value: unknown): value is number {
  return typeof value === 'number' && Number.isSafeInteger(value) && value >= 0;
}

function isTexts(value: unknown): value is readonly string[] {
  return Array.isArray(value) && value.every((entry) => typeof entry === 'string');
}
