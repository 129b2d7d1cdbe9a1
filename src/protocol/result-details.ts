/**
 * Recovery metadata of a rejected commit (§6.3.1, part 1.5). All of its faults are decode errors (part 1.17 W-a); a host
 * that builds bad details made a programming error and hears of it where it builds them (part 2.17).
 */
import { compareUtf16, decodeError, isWellFormed } from './bytes.ts';
import type { PushResultDetailsFrame, PushResultFrame } from './frames.ts';
import { isJsonText } from './json-text.ts';

/** At least one member is present. */
export interface ResultDetails {
  /** `identifier(.identifier)*`, 1 to 32 distinct ones of at most 160 characters. */
  readonly fieldPaths?: readonly string[];
  /** A token of at most 96 characters. */
  readonly reason?: string;
  /** A token of at most 96 characters. */
  readonly requiredAction?: string;
  /** 1 to 16 entries: token of at most 64 characters → trimmed text of at most 256 UTF-8 bytes. */
  readonly references?: Readonly<Record<string, string>>;
}

const DETAILS_BYTES_MAX = 4_096;
const FIELD_PATHS_MAX = 32;
const FIELD_PATH_CHARS_MAX = 160;
const TOKEN_CHARS_MAX = 96;
const REFERENCES_MAX = 16;
const REFERENCE_KEY_CHARS_MAX = 64;
const REFERENCE_BYTES_MAX = 256;

/** `identifier` is `[A-Za-z_][A-Za-z0-9_]*` (part 2.24 decision 26). */
const FIELD_PATH = /^[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*$/;
const TOKEN = /^[a-z][a-z0-9]*(?:[._-][a-z0-9]+)*$/;
const CONTROL_CHARACTER = /\p{Cc}/u;
/** In a JSON text, each string; group 1 is there when it is a member name. */
const STRING_TOKEN = /"(?:[^"\\]|\\.)*"(\s*:)?/g;
/** Part 2.24 decision 26: also the order of the normalized object. */
const MEMBERS: ReadonlySet<string> = new Set(['fieldPaths', 'reason', 'requiredAction', 'references']);
const UTF8 = new TextEncoder();

/** Throws `sync.invalid_request` for every fault of the table in part 1.5. */
export function parseResultDetails(text: string): ResultDetails {
  const fault = detailsTextFault(text);
  if (fault !== null) throw decodeError(fault);
  return JSON.parse(text) as ResultDetails;
}

/**
 * The text that travels and is stored: members in the order `fieldPaths`, `reason`, `requiredAction`, `references`, references
 * by key. Throws `RangeError` for a value that a decoder would refuse: a defect of the host.
 */
export function normalizeResultDetails(value: unknown): string {
  const fault = detailsValueFault(value);
  if (fault !== null) throw new RangeError(fault);
  const { fieldPaths, reason, requiredAction, references } = value as ResultDetails;
  const ordered = references && Object.entries(references).sort(([a], [b]) => compareUtf16(a, b));
  const text = JSON.stringify({
    fieldPaths,
    reason,
    requiredAction,
    references: ordered && Object.fromEntries(ordered),
  });
  if (utf8Bytes(text) > DETAILS_BYTES_MAX) throw new RangeError('result details exceed 4096 bytes');
  return text;
}

/** What is wrong with `details` standing behind `result`, or `null` (part 1.5, 1.17 W-a). */
export function detailsFault(details: PushResultDetailsFrame, result: PushResultFrame): string | null {
  if (result.status !== 'rejected') return 'result details stand behind a result that is not rejected';
  if (details.clientCommitId !== result.clientCommitId) return 'result details name another commit';
  for (const { opIndex } of details.entries) {
    const refers = result.results.some((record) => record.opIndex === opIndex && record.status === 'error');
    if (!refers) return 'result details refer to no error record';
  }
  return null;
}

/** What is wrong with the entries on their own, or `null`. */
export function detailsEntriesFault(entries: PushResultDetailsFrame['entries']): string | null {
  if (entries.length === 0) return 'result details have no entries';
  const seen = new Set<number>();
  for (const { opIndex, detailsJson } of entries) {
    if (opIndex < 0 || seen.has(opIndex)) return 'an opIndex of result details is negative or repeated';
    seen.add(opIndex);
    const fault = detailsTextFault(detailsJson);
    if (fault !== null) return fault;
  }
  return null;
}

function detailsTextFault(text: string): string | null {
  if (utf8Bytes(text) > DETAILS_BYTES_MAX) return 'result details exceed 4096 bytes';
  if (!isJsonText(text)) return 'result details are not JSON';
  const value: unknown = JSON.parse(text);
  const fault = detailsValueFault(value);
  if (fault !== null) return fault;
  return memberNames(text) === memberCount(value as ResultDetails)
    ? null
    : 'result details have a member twice';
}

function detailsValueFault(value: unknown): string | null {
  if (!isPlainObject(value)) return 'result details are not an object';
  // A member that is undefined is absent, as `JSON.stringify` has it.
  const members = Object.keys(value).filter((name) => value[name] !== undefined);
  if (members.length === 0) return 'result details are empty';
  if (!members.every((name) => MEMBERS.has(name))) return 'result details have an unknown member';
  const { fieldPaths, reason, requiredAction, references } = value;
  if (fieldPaths !== undefined && !areFieldPaths(fieldPaths))
    return 'fieldPaths of result details are malformed';
  if (reason !== undefined && !isToken(reason, TOKEN_CHARS_MAX))
    return 'reason of result details is malformed';
  if (requiredAction !== undefined && !isToken(requiredAction, TOKEN_CHARS_MAX)) {
    return 'requiredAction of result details is malformed';
  }
  if (references !== undefined && !areReferences(references))
    return 'references of result details are malformed';
  return null;
}

function isPlainObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function isToken(value: unknown, charsMax: number): boolean {
  return typeof value === 'string' && value.length <= charsMax && TOKEN.test(value);
}

function areFieldPaths(value: unknown): boolean {
  if (!Array.isArray(value) || value.length === 0 || value.length > FIELD_PATHS_MAX) return false;
  if (new Set(value).size !== value.length) return false;
  return value.every(
    (path) => typeof path === 'string' && path.length <= FIELD_PATH_CHARS_MAX && FIELD_PATH.test(path),
  );
}

function areReferences(value: unknown): boolean {
  if (!isPlainObject(value)) return false;
  const entries = Object.entries(value);
  if (entries.length === 0 || entries.length > REFERENCES_MAX) return false;
  return entries.every(([key, text]) => isToken(key, REFERENCE_KEY_CHARS_MAX) && isReferenceText(text));
}

function isReferenceText(text: unknown): boolean {
  if (typeof text !== 'string' || text === '' || text !== text.trim()) return false;
  return !CONTROL_CHARACTER.test(text) && isWellFormed(text) && utf8Bytes(text) <= REFERENCE_BYTES_MAX;
}

function utf8Bytes(text: string): number {
  // A text longer than this in units is longer in bytes as well, and need not be encoded to be refused.
  return text.length > DETAILS_BYTES_MAX ? text.length : UTF8.encode(text).length;
}

/** Names written in the text, repeated ones too: the parsed object no longer shows those. */
function memberNames(text: string): number {
  let count = 0;
  for (const match of text.matchAll(STRING_TOKEN)) {
    if (match[1] !== undefined) count++;
  }
  return count;
}

function memberCount(details: ResultDetails): number {
  return Object.keys(details).length + Object.keys(details.references ?? {}).length;
}
