/** The schema compiler (§2.4, §3.1, §5.10, §5.11, part 6 rules 4 and 5, part 2.24 decisions 8, 17, 28). */
import { describe, expect, test } from 'vitest';
import { compileSchema } from '../../src/protocol/schema-compiler.ts';
import type { SchemaDocument } from '../../src/protocol/schema-document.ts';
import { SchemaError, type SchemaProblem } from '../../src/protocol/schema-problems.ts';
import { documentOf, NOTES, notes, TABLE_FAULTS, withColumn } from './schema-samples.ts';

function problemsOf(
  document: unknown,
  options?: Parameters<typeof compileSchema>[1],
): readonly SchemaProblem[] {
  try {
    compileSchema(document, options);
  } catch (failure) {
    if (failure instanceof SchemaError) return failure.problems;
    throw failure;
  }
  return [];
}

describe('a good schema', () => {
  const document: SchemaDocument = {
    version: 7,
    tables: [
      {
        name: 'projects',
        columns: [
          { name: 'id', type: 'integer' },
          { name: 'title', type: 'string' },
        ],
        primaryKey: 'id',
        scopes: [{ pattern: 'project:{project_id}', column: 'id' }],
      },
      {
        name: 'docs',
        columns: [
          { name: 'id', type: 'string' },
          { name: 'project_id', type: 'integer' },
          { name: 'owner', type: 'string', nullable: true },
          { name: 'doc', type: 'crdt', nullable: true, crdtType: 'yjs-doc' },
          { name: 'secret', type: 'json', encrypted: true },
          { name: 'attachment', type: 'blob_ref', nullable: true },
        ],
        primaryKey: 'id',
        scopes: ['project:{project_id}', { pattern: 'app:user:{user}', column: 'owner' }],
        requiredScopes: ['project_id'],
        indexes: [{ name: 'docs_by_owner', columns: ['owner', 'id'], unique: true }],
      },
    ],
  };

  test('compiles to what every layer asks for', () => {
    const schema = compileSchema(document);
    const docs = schema.tableByName.get('docs')!;
    expect(schema.version).toBe(7);
    expect(schema.tables.map(({ name }) => name)).toEqual(['projects', 'docs']);
    expect([...schema.variables].sort()).toEqual(['project_id', 'user']);
    expect(docs.columns.map(({ name, type, nullable }) => [name, type, nullable])).toEqual([
      ['id', 'string', false],
      ['project_id', 'integer', false],
      ['owner', 'string', true],
      ['doc', 'crdt', true],
      ['secret', 'bytes', false],
      ['attachment', 'blob_ref', true],
    ]);
    expect(docs.columns[3]).toMatchObject({ crdtType: 'yjs-doc', encrypted: false });
    expect(docs.columns[4]).toMatchObject({ encrypted: true, declaredType: 'json' });
    expect([docs.primaryKey, docs.primaryKeyIndex, docs.hasEncrypted, docs.materialize]).toEqual([
      'id',
      0,
      true,
      true,
    ]);
    expect(docs.columnIndex.get('doc')).toBe(3);
    expect(docs.requiredScopes).toEqual(['project_id']);
    expect(docs.indexes).toEqual([{ name: 'docs_by_owner', columns: ['owner', 'id'], unique: true }]);
  });

  test('decision 28: a pattern’s column is the one named like its variable unless it says otherwise', () => {
    const schema = compileSchema(document);
    const project = { variable: 'project_id', prefix: 'project', column: 'project_id', columnIndex: 1 };
    const user = { variable: 'user', prefix: 'app:user', column: 'owner', columnIndex: 2 };
    const { scopes, scopeByVariable } = schema.tableByName.get('docs')!;
    expect(scopes).toEqual([project, user]);
    expect(scopeByVariable.get('user')).toBe(scopes[1]);
    expect(schema.tableByName.get('projects')!.scopes).toEqual([
      { variable: 'project_id', prefix: 'project', column: 'id', columnIndex: 0 },
    ]);
  });

  test('S-038: full-text indexes and other metadata are ignored and create nothing', () => {
    const generated = {
      irVersion: 1,
      schemaVersion: 7,
      schemaVersions: [{ version: 7, migrations: ['0001_initial'] }],
      tables: document.tables.map((table) => ({
        ...table,
        scopes: table.scopes.map((scope) => ({
          ...(typeof scope === 'string' ? { pattern: scope } : scope),
          variable: 'whatever the generator adds',
        })),
        ftsIndexes: [{ name: 'docs_fts', columns: ['title'] }],
        references: [{ column: 'project_id', parentTable: 'projects', onDelete: 'CASCADE' }],
        generation: 'g1',
        extensions: {},
      })),
      subscriptions: [{ name: 'all', table: 'docs_fts' }],
      extensions: {},
    };
    expect(compileSchema(generated)).toEqual(compileSchema(document));
  });

  test('a generated encrypted column already has its wire type', () => {
    const table = withColumn({
      name: 'secret',
      type: 'bytes',
      nullable: true,
      encrypted: true,
      declaredType: 'integer',
    });
    const schema = compileSchema(documentOf(table));
    expect(schema.tables[0]!.columns[4]).toEqual({
      name: 'secret',
      type: 'bytes',
      nullable: true,
      encrypted: true,
      declaredType: 'integer',
    });
  });

  test.each<[string, unknown]>([
    ['no tables at all', documentOf()],
    ['the highest version', { version: 2 ** 31 - 1, tables: [] }],
    [
      'a nullable scope column',
      documentOf(withColumn({ name: 'org', type: 'string', nullable: true }, { scopes: ['org:{org}'] })),
    ],
    [
      'two variables over one column',
      documentOf(notes({ scopes: ['a:{project_id}', { pattern: 'b:{b}', column: 'project_id' }] })),
    ],
    [
      'a variable with another column and prefix in another table',
      documentOf(NOTES, notes({ name: 'tasks', scopes: [{ pattern: 'p:{project_id}', column: 'id' }] })),
    ],
    ['columns named like object members', documentOf(withColumn({ name: '__proto__', type: 'string' }))],
    ['63 bytes of a name', documentOf(notes({ name: 'é'.repeat(31).concat('x') }))],
    ['an unknown crdtType that an option makes known', null],
  ])('allowed: %s', (_case, document) => {
    const custom = documentOf(withColumn({ name: 'doc', type: 'crdt', crdtType: 'counter' }));
    expect(problemsOf(document ?? custom, { crdtTypes: ['counter'] })).toEqual([]);
  });
});

describe('faults of a table: each is named with its table and a fix', () => {
  test.each(TABLE_FAULTS)('%s', (_case, table, word) => {
    const problems = problemsOf(documentOf(table));
    expect(problems).toHaveLength(1);
    expect(problems[0]).toMatchObject({ table: 'notes', fault: expect.stringContaining(word) });
    expect(problems[0]!.fix).not.toBe('');
  });

  test('a table without columns', () => {
    for (const columns of [[], undefined, {}]) {
      const [first] = problemsOf(documentOf(notes({ columns })));
      expect(first).toMatchObject({ table: 'notes', fault: expect.stringContaining('no columns') });
    }
  });
});

describe('part 6 rule 5: materialize', () => {
  const vault = (changes: Readonly<Record<string, unknown>>) => ({
    name: 'vault',
    columns: [
      { name: 'id', type: 'string' },
      { name: 'project_id', type: 'string' },
      { name: 'secret', type: 'string', encrypted: true },
    ],
    primaryKey: 'id',
    scopes: ['project:{project_id}'],
    materialize: false,
    ...changes,
  });

  test('an encrypted-only table may go without typed columns', () => {
    expect(compileSchema(documentOf(vault({}))).tables[0]!.materialize).toBe(false);
  });

  test('a table with no encrypted column is not encrypted-only', () => {
    const problems = problemsOf(documentOf(vault({ columns: vault({}).columns.slice(0, 2) })));
    expect(problems.map(({ fault }) => fault)).toEqual([expect.stringContaining('in the clear: none')]);
  });

  test('an index needs its columns', () => {
    const problems = problemsOf(documentOf(vault({ indexes: [{ name: 'i', columns: ['project_id'] }] })));
    expect(problems.map(({ fault }) => fault)).toEqual([expect.stringContaining('has indexes')]);
  });
});

describe('part 6 rule 4: identifiers', () => {
  const bad: readonly [string, string][] = [
    ['', 'is empty'],
    ['x'.repeat(64), 'longer than 63 UTF-8 bytes'],
    ['é'.repeat(32), 'longer than 63 UTF-8 bytes'],
    ['sync_x', 'reserved prefix sync_'],
    ['Sync_x', 'reserved prefix sync_'],
    ['_sync_row_id', 'reserved prefix _sync'],
    ['_syncular_version', 'reserved prefix _sync'],
    ['_SYNC', 'reserved prefix _sync'],
    ['a\u0000b', 'control character'],
    ['a\ud800', 'lone surrogate'],
  ];

  test.each(bad)('%j is refused as a table, a column and an index', (name, word) => {
    const index = { name, columns: ['id'] };
    const documents = [notes({ name }), withColumn({ name, type: 'string' }), notes({ indexes: [index] })];
    for (const table of documents) {
      expect(problemsOf(documentOf(table)).map(({ fault }) => fault)).toEqual([
        expect.stringContaining(word),
      ]);
    }
  });

  test('SQLite keeps sqlite_ for itself, PostgreSQL some column names', () => {
    expect(problemsOf(documentOf(notes({ name: 'SQLite_x' })))).toHaveLength(1);
    expect(problemsOf(documentOf(notes({ indexes: [{ name: 'sqlite_i', columns: ['id'] }] })))).toHaveLength(
      1,
    );
    expect(problemsOf(documentOf(withColumn({ name: 'XMIN', type: 'string' })))).toHaveLength(1);
    expect(problemsOf(documentOf(notes({ name: 'xmin' })))).toEqual([]);
    expect(problemsOf(documentOf(withColumn({ name: 'sqlite_x', type: 'string' })))).toEqual([]);
  });

  test('syncing, _s and sync are free', () => {
    for (const name of ['syncing', '_s', 'sync', 'x_sync_', 'rowid', 'select', 'two words']) {
      expect(problemsOf(documentOf(notes({ name })))).toEqual([]);
      expect(problemsOf(documentOf(withColumn({ name, type: 'string' })))).toEqual([]);
    }
  });
});

describe('faults of the document', () => {
  test.each<[string, unknown, string]>([
    ['null', null, 'not an object'],
    ['a list', [], 'not an object'],
    ['no version', { tables: [] }, 'version'],
    ['version 0', { version: 0, tables: [] }, 'version'],
    ['version 1.5', { version: 1.5, tables: [] }, 'version'],
    ['version beyond i32', { version: 2 ** 31, tables: [] }, 'version'],
    ['version as text', { version: '1', tables: [] }, 'version'],
    ['two versions', { version: 1, schemaVersion: 2, tables: [] }, 'differ'],
    ['no tables', { version: 1 }, 'tables is not a list'],
  ])('%s', (_case, document, word) => {
    expect(problemsOf(document)).toEqual([
      { table: null, fault: expect.stringContaining(word), fix: expect.any(String) },
    ]);
  });

  test('a table without a name is named by its position', () => {
    expect(problemsOf(documentOf(NOTES, { columns: [] }, 7)).map(({ table }) => table)).toEqual(['#1', '#2']);
  });

  test('two tables of one name, whatever the case', () => {
    const problems = problemsOf(documentOf(NOTES, notes({ name: 'NOTES' })));
    expect(problems).toEqual([
      { table: 'NOTES', fault: expect.stringContaining('already that of a table'), fix: expect.any(String) },
    ]);
  });

  test('all problems are reported at once, each with its table, in the message too', () => {
    const broken = documentOf(
      notes({ scopes: [], primaryKey: 'body' }),
      notes({ name: 'sync_x', indexes: [{ name: 'i', columns: [] }] }),
    );
    expect(problemsOf(broken).map(({ table }) => table)).toEqual(['notes', 'notes', 'sync_x', 'sync_x']);
    expect(() => compileSchema(broken)).toThrow(/table notes: .*; .*\n.*table notes: .*\n.*table sync_x/);
  });
});
