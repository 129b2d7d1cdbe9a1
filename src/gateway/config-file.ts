/** Reads a configuration file: JSON, or a module whose default export is the configuration. */
import { readFile } from 'node:fs/promises';
import { dirname, extname, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import { ConfigError, messageOf } from './config-error.ts';

export interface ConfigFile {
  readonly path: string;
  /** Relative paths inside the file start here. */
  readonly folder: string;
  readonly kind: 'json' | 'module';
  readonly content: Readonly<Record<string, unknown>>;
}

const MODULE_EXTENSIONS: readonly string[] = ['.js', '.mjs', '.cjs', '.ts', '.mts'];

/** Throws a `ConfigError`. */
export async function readConfigFile(path: string): Promise<ConfigFile> {
  const absolute = resolve(path);
  const kind = MODULE_EXTENSIONS.includes(extname(absolute)) ? 'module' : 'json';
  const content =
    kind === 'module' ? await importDefault(absolute) : parseJson(await readText(absolute), absolute);
  if (typeof content !== 'object' || content === null || Array.isArray(content)) {
    throw new ConfigError([`${path} must ${kind === 'module' ? 'export by default' : 'hold'} an object`]);
  }
  return { path, folder: dirname(absolute), kind, content: { ...content } };
}

/** Throws a `ConfigError` when the file cannot be read or is not JSON. */
export async function readJsonFile(path: string): Promise<unknown> {
  return parseJson(await readText(path), path);
}

async function readText(path: string): Promise<string> {
  try {
    return await readFile(path, 'utf8');
  } catch (failure) {
    throw new ConfigError([`${path} cannot be read: ${messageOf(failure)}`]);
  }
}

function parseJson(text: string, path: string): unknown {
  try {
    return JSON.parse(text);
  } catch (failure) {
    throw new ConfigError([`${path} is not JSON: ${messageOf(failure)}`]);
  }
}

async function importDefault(path: string): Promise<unknown> {
  let module: unknown;
  try {
    module = await import(pathToFileURL(path).href);
  } catch (failure) {
    const hint = /\.m?ts$/.test(path) ? ' (a TypeScript file needs Node 22.18 or later, or tsx)' : '';
    throw new ConfigError([`${path} cannot be imported: ${messageOf(failure)}${hint}`]);
  }
  return typeof module === 'object' && module !== null && 'default' in module ? module.default : undefined;
}
