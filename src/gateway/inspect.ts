/** `tidegate inspect` and `tidegate schema check`: what bytes and schema documents hold, for people. */
import { readFile } from 'node:fs/promises';
import type { Readable } from 'node:stream';
import { SyncError } from '../protocol/errors.ts';
import { renderAny } from '../protocol/render.ts';
import type { CompiledSchema } from '../protocol/schema.ts';
import { compileSchema } from '../protocol/schema-compiler.ts';
import { SchemaError } from '../protocol/schema-problems.ts';
import { type CliIo, EXIT, type ExitCode } from './cli-io.ts';
import { ConfigError, messageOf } from './config-error.ts';
import { readJsonFile } from './config-file.ts';

export const STANDARD_INPUT = '-';

/** Prints a message or a segment as JSON. */
export async function inspect(path: string, io: CliIo): Promise<ExitCode> {
  const bytes = path === STANDARD_INPUT ? await readAll(io.stdin) : await readBytes(path);
  try {
    io.stdout(`${JSON.stringify(renderAny(bytes), null, 2)}\n`);
    return EXIT.ok;
  } catch (failure) {
    const error = SyncError.from(failure);
    if (error === null) throw failure;
    io.stderr(`${path === STANDARD_INPUT ? 'standard input' : path}: ${error.message}\n`);
    return EXIT.failed;
  }
}

export async function checkSchema(path: string, io: CliIo): Promise<ExitCode> {
  const document = await readJsonFile(path);
  try {
    io.stdout(summarize(compileSchema(document)));
    return EXIT.ok;
  } catch (failure) {
    if (!(failure instanceof SchemaError)) throw failure;
    io.stderr(`${failure.message}\n`);
    return EXIT.failed;
  }
}

function summarize({ version, tables }: CompiledSchema): string {
  const lines = tables.map(({ name, columns, primaryKey, scopes }) => {
    const patterns = scopes.map(({ prefix, variable, column }) => `${prefix}:{${variable}} on ${column}`);
    return `  ${name}: ${columns.length} columns, key ${primaryKey}, scopes ${patterns.join(', ')}\n`;
  });
  return `schema version ${version} is fine, ${tables.length} tables\n${lines.join('')}`;
}

async function readBytes(path: string): Promise<Uint8Array> {
  try {
    return new Uint8Array(await readFile(path));
  } catch (failure) {
    throw new ConfigError([`${path} cannot be read: ${messageOf(failure)}`]);
  }
}

async function readAll(stream: Readable): Promise<Uint8Array> {
  const chunks: Uint8Array[] = [];
  for await (const chunk of stream) chunks.push(typeof chunk === 'string' ? Buffer.from(chunk) : chunk);
  return new Uint8Array(Buffer.concat(chunks));
}
