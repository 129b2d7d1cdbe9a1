/** One good table, and one table for each fault that the schema compiler names. */
import type { TableDocument } from '../../src/protocol/schema-document.ts';

export const NOTES: TableDocument = {
  name: 'notes',
  columns: [
    { name: 'id', type: 'string', nullable: false },
    { name: 'project_id', type: 'string', nullable: false },
    { name: 'body', type: 'string', nullable: true },
    { name: 'count', type: 'integer', nullable: true },
  ],
  primaryKey: 'id',
  scopes: ['project:{project_id}'],
};

export const documentOf = (...tables: readonly unknown[]) => ({ version: 1, tables });
/** The notes table with members or columns of another make; `undefined` removes a member. */
export const notes = (changes: Readonly<Record<string, unknown>>) => ({ ...NOTES, ...changes });
export const withColumn = (column: unknown, changes: Readonly<Record<string, unknown>> = {}) =>
  notes({ columns: [...NOTES.columns, column], ...changes });

/** Each: what is wrong, the table, and words that the fault must contain. */
export const TABLE_FAULTS: readonly [string, unknown, string][] = [
  [
    'too many columns',
    notes({
      columns: Array.from({ length: 1_501 }, (_, i) => ({ name: `c${i}`, type: 'string' })),
      primaryKey: 'c0',
      scopes: ['c:{c1}'],
    }),
    '1501 columns',
  ],
  ['a column without a name', withColumn({ type: 'string' }), 'column #4 has no name'],
  ['an unknown type', withColumn({ name: 'x', type: 'text' }), 'x has an unknown type'],
  ['a type from the prototype', withColumn({ name: 'x', type: 'toString' }), 'x has an unknown type'],
  ['the same column twice', withColumn({ name: 'body', type: 'string' }), 'body appears twice'],
  ['the same column in another case', withColumn({ name: 'BODY', type: 'string' }), 'BODY appears twice'],
  ['nullable not a boolean', withColumn({ name: 'x', type: 'string', nullable: 1 }), 'nullable of column x'],
  [
    'encrypted not a boolean',
    withColumn({ name: 'x', type: 'string', encrypted: 'yes' }),
    'encrypted of column x',
  ],
  [
    'S-111: unknown crdtType',
    withColumn({ name: 'doc', type: 'crdt', crdtType: 'counter' }),
    'unknown crdtType',
  ],
  ['crdt without crdtType', withColumn({ name: 'doc', type: 'crdt' }), 'no crdtType'],
  [
    'crdtType on another type',
    withColumn({ name: 'doc', type: 'bytes', crdtType: 'yjs-doc' }),
    'but type bytes',
  ],
  [
    'decision 17: encrypted blob_ref',
    withColumn({ name: 'x', type: 'blob_ref', encrypted: true }),
    'blob_ref column x is encrypted',
  ],
  [
    'decision 17: by declaredType',
    withColumn({ name: 'x', type: 'bytes', encrypted: true, declaredType: 'blob_ref' }),
    'blob_ref column x is encrypted',
  ],
  [
    'encrypted crdt',
    withColumn({ name: 'x', type: 'bytes', encrypted: true, declaredType: 'crdt' }),
    'crdt column x is encrypted',
  ],
  [
    'unknown declaredType',
    withColumn({ name: 'x', type: 'bytes', encrypted: true, declaredType: 'uuid' }),
    'unknown declaredType',
  ],
  [
    'type against declaredType',
    withColumn({ name: 'x', type: 'string', encrypted: true, declaredType: 'json' }),
    'declaredType json',
  ],
  ['no primary key', notes({ primaryKey: undefined }), 'primaryKey names no column'],
  ['a compound primary key', notes({ primaryKey: ['id', 'body'] }), 'primaryKey names no column'],
  ['an absent primary key column', notes({ primaryKey: 'nope' }), 'primaryKey names no column'],
  ['nullable primary key', notes({ primaryKey: 'body' }), 'body is nullable'],
  ...(['float', 'boolean', 'json', 'bytes', 'blob_ref'] as const).map((type): [string, unknown, string] => [
    `${type} primary key`,
    withColumn({ name: 'x', type }, { primaryKey: 'x' }),
    `primary key x is ${type}`,
  ]),
  [
    'crdt primary key',
    withColumn({ name: 'x', type: 'crdt', crdtType: 'yjs-doc' }, { primaryKey: 'x' }),
    'primary key x is crdt',
  ],
  [
    'encrypted primary key',
    withColumn({ name: 'x', type: 'string', encrypted: true }, { primaryKey: 'x' }),
    'primary key x is encrypted',
  ],
  ['S-040: no scopes', notes({ scopes: undefined }), 'no scope pattern'],
  ['S-040: an empty list of scopes', notes({ scopes: [] }), 'no scope pattern'],
  [
    'S-039: one variable, two columns',
    notes({ scopes: ['p:{project_id}', { pattern: 'p:{project_id}', column: 'body' }] }),
    'names the columns project_id and body',
  ],
  ['one variable, two patterns', notes({ scopes: ['p:{project_id}', 'q:{project_id}'] }), 'two patterns'],
  ['scope over an absent column', notes({ scopes: ['org:{org_id}'] }), 'does not exist'],
  [
    'scope names an absent column',
    notes({ scopes: [{ pattern: 'org:{id}', column: 'org' }] }),
    'does not exist',
  ],
  ['scope without a pattern', notes({ scopes: [{ column: 'id' }] }), 'scope #0 has no pattern'],
  ['scope is a number', notes({ scopes: [7] }), 'scope #0 has no pattern'],
  ...(['float', 'boolean', 'json', 'bytes', 'blob_ref'] as const).map((type): [string, unknown, string] => [
    `decision 28: scope over a ${type} column`,
    withColumn({ name: 'x', type }, { scopes: ['x:{x}'] }),
    `over the ${type} column x`,
  ]),
  [
    'scope over a crdt column',
    withColumn({ name: 'x', type: 'crdt', crdtType: 'yjs-doc' }, { scopes: ['x:{x}'] }),
    'over the crdt column x',
  ],
  [
    'scope over an encrypted column',
    withColumn({ name: 'x', type: 'string', encrypted: true }, { scopes: ['x:{x}'] }),
    'over the encrypted column x',
  ],
  ...[
    'project',
    'project:',
    'project:{}',
    ':{id}',
    '{id}',
    'p:{id}:x',
    'p:{id}{body}',
    'p:{id}:{body}',
    'p{id}',
    'p:id}',
    'p:{{id}}',
    '',
    'p\ud800:{id}',
  ].map((pattern): [string, unknown, string] => [
    `pattern ${JSON.stringify(pattern)}`,
    notes({ scopes: [pattern] }),
    'is malformed',
  ]),
  ...['*', '__proto__', 'a b', 'a\n'].map((variable): [string, unknown, string] => [
    `variable ${JSON.stringify(variable)}`,
    notes({ scopes: [{ pattern: `p:{${variable}}`, column: 'id' }] }),
    'cannot be used',
  ]),
  [
    'decision 8: requiredScopes names a stranger',
    notes({ requiredScopes: ['org'] }),
    '"org", which no pattern declares',
  ],
  ['requiredScopes not a list', notes({ requiredScopes: 'project_id' }), 'not a list'],
  ['indexes not a list', notes({ indexes: {} }), 'indexes is not a list'],
  ['index without a name', notes({ indexes: [{ columns: ['id'] }] }), 'index #0 has no name'],
  [
    'index over an absent column',
    notes({ indexes: [{ name: 'i', columns: ['id', 'nope'] }] }),
    'index i does not list columns',
  ],
  ['index over no column', notes({ indexes: [{ name: 'i', columns: [] }] }), 'index i does not list columns'],
  [
    'index over a column twice',
    notes({ indexes: [{ name: 'i', columns: ['id', 'id'] }] }),
    'index i does not list columns',
  ],
  [
    'unique not a boolean',
    notes({ indexes: [{ name: 'i', columns: ['id'], unique: 1 }] }),
    'unique of index i',
  ],
  [
    'two indexes of one name',
    notes({
      indexes: [
        { name: 'i', columns: ['id'] },
        { name: 'I', columns: ['id'] },
      ],
    }),
    'I is already that of an index',
  ],
  [
    'an index named like its table',
    notes({ indexes: [{ name: 'notes', columns: ['id'] }] }),
    'already that of a table',
  ],
  ['materialize not a boolean', notes({ materialize: 'no' }), 'materialize is neither'],
  [
    'part 6 rule 5: materialize false with a column in the clear',
    withColumn({ name: 'x', type: 'string', encrypted: true }, { materialize: false }),
    'in the clear: body, count',
  ],
];
