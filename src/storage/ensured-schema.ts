/** What one instance was brought to last, so that the same `ensureSchema` again costs nothing (part 4, 4.2). */
import type { CompiledSchema } from '../protocol/schema.ts';
import type { CheckpointDeclaration } from './checkpoints.ts';
import { storedSchemaText } from './stored-schema.ts';

/** What `ensureSchema` works on. */
export interface SchemaRequest {
  readonly schema: CompiledSchema;
  readonly checkpoints: readonly CheckpointDeclaration[];
  readonly nowMs: number;
}

/** Only the latest is kept: whoever went to another version and back is checked again. */
export class EnsuredSchema {
  #latest: { readonly key: string; readonly done: Promise<void> } | null = null;

  /** Calls at once share one run; a run that failed is forgotten. */
  ensure(request: Omit<SchemaRequest, 'nowMs'>, run: () => Promise<void>): Promise<void> {
    const key = keyOf(request);
    if (this.#latest?.key === key) return this.#latest.done;
    const latest = { key, done: run() };
    this.#latest = latest;
    latest.done.catch(() => {
      if (this.#latest === latest) this.#latest = null;
    });
    return latest.done;
  }
}

function keyOf({ schema, checkpoints }: Omit<SchemaRequest, 'nowMs'>): string {
  const declared = checkpoints.map(({ partition, name, schemaVersion }) => [partition, name, schemaVersion]);
  return JSON.stringify([storedSchemaText(schema, []), declared]);
}
