/** The part of a configuration that says where the data is, and of what schema. */
import type { Config, DataConfig } from './config.ts';
import { readJsonFile } from './config-file.ts';
import type { ConfiguredStorage } from './storage-option.ts';

const PREPARED = ['auto', 'named', 'unnamed'] as const;

export function storageOptionOf({ storage, settings }: DataConfig): ConfiguredStorage {
  if (storage.kind === 'sqlite') {
    const synchronous = settings.sqliteSynchronous === 'NORMAL' ? 'NORMAL' : 'FULL';
    return { path: storage.path, synchronous };
  }
  const postgres = {
    namespace: settings.postgresNamespace,
    preparedStatements: PREPARED.find((mode) => mode === settings.postgresPreparedStatements) ?? 'auto',
    writersMax: settings.postgresWritersMax,
    readersMax: settings.postgresReadersMax,
  } as const;
  return { url: storage.url, postgres };
}

/** Not checked yet. Throws a `ConfigError` where it is a file that cannot be read or is not JSON. */
export async function readSchemaDocument({ schema }: Pick<Config, 'schema'>): Promise<unknown> {
  return schema.kind === 'file' ? readJsonFile(schema.path) : schema.document;
}
