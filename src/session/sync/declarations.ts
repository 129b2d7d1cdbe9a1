/** The checkpoints that the host of this process declared (part 4, 4.2). */
import type { CheckpointDeclaration } from '../../storage/checkpoints.ts';

export interface Declarations {
  readonly list: readonly CheckpointDeclaration[];
  has(partition: string, name: string): boolean;
}

/**
 * Throws `RangeError` for one that cannot be meant: an empty name, a version that is none or above the running one (it would
 * fence this very process), the same checkpoint twice.
 */
export function compileDeclarations(
  list: readonly CheckpointDeclaration[],
  runningVersion: number,
): Declarations {
  if (list.length === 0) return NOTHING_DECLARED;
  const names = new Map<string, Set<string>>();
  for (const { partition, name, schemaVersion } of list) {
    if (partition === '' || name === '') {
      throw new RangeError('a checkpoint needs a partition and a name');
    }
    if (!Number.isSafeInteger(schemaVersion) || schemaVersion < 1 || schemaVersion > runningVersion) {
      throw new RangeError(
        `the checkpoint ${name} needs a schema version: a whole number, at most that of the schema (${runningVersion})`,
      );
    }
    const declared = names.get(partition) ?? new Set<string>();
    if (declared.has(name)) throw new RangeError(`the checkpoint ${name} is declared twice in one partition`);
    names.set(partition, declared.add(name));
  }
  return {
    list: Object.freeze([...list]),
    has: (partition, name) => names.get(partition)?.has(name) === true,
  };
}

export const NOTHING_DECLARED: Declarations = { list: Object.freeze([]), has: () => false };
