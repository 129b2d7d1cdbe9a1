/** `tidegate migrate`: brings a database to the running schema, or shows how. */
import { compileSchema } from '../protocol/schema-compiler.ts';
import { type CliIo, EXIT, type ExitCode } from './cli-io.ts';
import type { MigrationConfig } from './config.ts';
import { readSchemaDocument, storageOptionOf } from './config-storage.ts';
import { createRealClock, keepAliveDuring } from './real-clock.ts';
import { openStorage, planMigration } from './storage-option.ts';

/** `show`: standard output gets the SQL and nothing else, so nothing where nothing is to be done. */
export type MigrationMode = 'show' | 'carry-out';

/** Throws `ConfigError`, `SchemaError`, `StorageError`. */
export function migrate(config: MigrationConfig, mode: MigrationMode, io: CliIo): Promise<ExitCode> {
  return keepAliveDuring(run(config, mode, io));
}

async function run(config: MigrationConfig, mode: MigrationMode, io: CliIo): Promise<ExitCode> {
  const crdtTypes = Object.keys(config.hooks.crdtMergers);
  const schema = compileSchema(await readSchemaDocument(config), { crdtTypes });
  const option = storageOptionOf(config);
  const clock = createRealClock();
  const { checkpoints } = config;
  const plan = await planMigration(option, { schema, checkpoints, clock });
  if (mode === 'show') {
    io.stdout(scriptOf(plan));
    return EXIT.ok;
  }
  if (plan.length === 0) {
    io.stdout(`nothing to do: the database is at schema version ${schema.version}\n`);
    return EXIT.ok;
  }
  const { storage, release } = await openStorage(option, clock);
  try {
    await storage.ensureSchema(schema, checkpoints);
  } finally {
    await release();
  }
  io.stdout(`migrated: the database is at schema version ${schema.version}\n`);
  return EXIT.ok;
}

/**
 * For a reader, and for `psql` or `sqlite3`. Where a transaction has a step that only the program can do, carrying the rest out
 * by hand would leave rows in a layout that the stored version denies: such a one is rolled back.
 */
function scriptOf(plan: readonly string[]): string {
  let needsProgram = false;
  const lines = plan.map((text) => {
    if (text.startsWith('--')) {
      needsProgram = true;
      return `${text}\n`;
    }
    if (text !== 'COMMIT' || !needsProgram) return `${text};\n`;
    needsProgram = false;
    return 'ROLLBACK; -- by hand this is incomplete: run tidegate migrate\n';
  });
  return lines.join('');
}
