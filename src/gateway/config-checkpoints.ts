/** The backfills that a configuration file declares (part 4, 4.2). */
import { isRecord } from '../protocol/schema-problems.ts';
import type { CheckpointDeclaration } from '../storage/checkpoints.ts';
import type { ConfigFile } from './config-file.ts';

const KEYS = ['partition', 'name', 'schemaVersion'];

export function readCheckpoints(
  file: ConfigFile | null,
  problems: string[],
): readonly CheckpointDeclaration[] {
  const value = file?.content.checkpoints;
  if (value === undefined || value === null) return [];
  if (!Array.isArray(value)) {
    problems.push(`checkpoints in ${file?.path} must be a list of { partition, name, schemaVersion }`);
    return [];
  }
  return value.flatMap((entry: unknown, position) => {
    const checkpoint = readOne(entry);
    if (checkpoint !== null) return [checkpoint];
    problems.push(
      `checkpoints entry ${position + 1} in ${file?.path} must be { partition, name, schemaVersion }, with a whole number from 1`,
    );
    return [];
  });
}

function readOne(entry: unknown): CheckpointDeclaration | null {
  if (!isRecord(entry) || Object.keys(entry).some((key) => !KEYS.includes(key))) return null;
  const { partition, name, schemaVersion } = entry;
  if (typeof partition !== 'string' || partition === '') return null;
  if (typeof name !== 'string' || name === '') return null;
  if (typeof schemaVersion !== 'number' || !Number.isSafeInteger(schemaVersion) || schemaVersion < 1)
    return null;
  return { partition, name, schemaVersion };
}
