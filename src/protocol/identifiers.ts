/** What a table, column or index may be called so that both databases can hold it (part 6 rule 4). */
import { isWellFormed } from './bytes.ts';

export const IDENTIFIER_BYTES_MAX = 63;

/** SQLite folds ASCII case in identifiers, so reservation and uniqueness are judged on the folded name. */
export function foldIdentifier(name: string): string {
  return name.replace(/[A-Z]+/g, (letters) => letters.toLowerCase());
}

const RESERVED_PREFIXES = ['sync_', '_sync'];
// biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what it looks for
const CONTROL_CHARACTER = /[\u0000-\u001f\u007f]/;
/** Names that PostgreSQL gives to every table itself. */
const SYSTEM_COLUMNS = new Set(['tableoid', 'xmin', 'cmin', 'xmax', 'cmax', 'ctid']);

export type IdentifierKind = 'table' | 'column' | 'index';

/** Why the name cannot be used, as the end of a sentence about it; `null` when it can. */
export function identifierFault(name: string, kind: IdentifierKind): string | null {
  if (name === '') return 'is empty';
  if (!isWellFormed(name)) return 'holds a lone surrogate';
  if (CONTROL_CHARACTER.test(name)) return 'holds a control character';
  if (new TextEncoder().encode(name).length > IDENTIFIER_BYTES_MAX) {
    return `is longer than ${IDENTIFIER_BYTES_MAX} UTF-8 bytes`;
  }
  const folded = foldIdentifier(name);
  const prefix = RESERVED_PREFIXES.find((reserved) => folded.startsWith(reserved));
  if (prefix !== undefined) return `begins with the reserved prefix ${prefix}`;
  if (kind !== 'column' && folded.startsWith('sqlite_')) return 'begins with sqlite_, which SQLite reserves';
  if (kind === 'column' && SYSTEM_COLUMNS.has(folded)) return 'is a system column of PostgreSQL';
  return null;
}
