/** What has to hold before anything is served (part 4, 4.2). */
import type { CompiledSchema } from '../protocol/schema.ts';
import { compileSchema } from '../protocol/schema-compiler.ts';
import type { SchemaDocument } from '../protocol/schema-document.ts';
import type { CheckpointDeclaration } from '../storage/checkpoints.ts';
import type { Storage } from '../storage/storage.ts';
import { StorageError } from '../storage/storage-error.ts';

/** `backfill_checkpoint`: a checkpoint of this schema version is not activated, and this process does not declare it. */
export type ReadinessPhase = 'schema_compile' | 'storage_migration' | 'backfill_checkpoint';

const MESSAGES: Readonly<Record<ReadinessPhase, string>> = {
  schema_compile: 'the schema is not valid',
  storage_migration: 'the storage could not be brought to the schema',
  backfill_checkpoint:
    'a backfill of this schema version is not complete, and this process does not declare it',
};

/** The message names no table, column or partition; `cause` has all of it, for the operator. */
export class ReadinessError extends Error {
  override readonly name = 'ReadinessError';
  readonly code = 'sync.schema_not_ready';
  readonly phase: ReadinessPhase;
  /** Of the schema that was to be served; `null` when the document does not say. */
  readonly schemaVersion: number | null;

  constructor(phase: ReadinessPhase, schemaVersion: number | null, cause: unknown) {
    super(`not ready to serve (${phase}): ${MESSAGES[phase]}`, { cause });
    this.phase = phase;
    this.schemaVersion = schemaVersion;
  }
}

export interface ReadyRequest {
  readonly schema: SchemaDocument;
  readonly storage: Storage;
  /** Every checkpoint that this process is part of the roll-out of. Empty declares nothing, and is never a bypass. */
  readonly checkpoints?: readonly CheckpointDeclaration[];
  /** Types of crdt columns that have a merger. */
  readonly crdtTypes?: readonly string[];
}

/** Migrates, declares and passes the barrier, or throws a `ReadinessError`; then nothing may be served. */
export async function ensureReady(request: ReadyRequest): Promise<CompiledSchema> {
  const schema = compileReadySchema(request);
  await ensureStorageReady(request.storage, schema, request.checkpoints ?? []);
  return schema;
}

export function compileReadySchema({
  schema,
  crdtTypes = [],
}: Pick<ReadyRequest, 'schema' | 'crdtTypes'>): CompiledSchema {
  try {
    return compileSchema(schema, { crdtTypes });
  } catch (cause) {
    throw new ReadinessError('schema_compile', versionOf(schema), cause);
  }
}

export async function ensureStorageReady(
  storage: Storage,
  schema: CompiledSchema,
  checkpoints: readonly CheckpointDeclaration[],
): Promise<void> {
  try {
    await storage.ensureSchema(schema, checkpoints);
  } catch (cause) {
    throw new ReadinessError(phaseOf(cause), schema.version, cause);
  }
}

function phaseOf(cause: unknown): ReadinessPhase {
  const isBarrier = cause instanceof StorageError && cause.code === 'sync.storage.checkpoint_incomplete';
  return isBarrier ? 'backfill_checkpoint' : 'storage_migration';
}

/** Whatever the host handed in: a document that is none has no version. */
function versionOf(document: unknown): number | null {
  if (typeof document !== 'object' || document === null || !('version' in document)) return null;
  return typeof document.version === 'number' ? document.version : null;
}
