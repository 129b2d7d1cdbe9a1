/** The one import direction (ARCHITECTURE.md) and the one folder that may import each heavy package. */
import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join, relative, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import ts from 'typescript';
import { describe, expect, test } from 'vitest';

const ROOT = resolve(fileURLToPath(new URL('..', import.meta.url)));
const SRC = join(ROOT, 'src');

/** Folder → folders it may import. `storage` stands for its contracts, not for an implementation. */
const ALLOWED: Readonly<Record<string, readonly string[]>> = {
  protocol: ['protocol', 'protocol/msgpack'],
  'protocol/msgpack': ['protocol', 'protocol/msgpack'],
  storage: ['protocol', 'storage'],
  'storage/sqlite': ['protocol', 'storage', 'storage/sqlite'],
  'storage/postgres': ['protocol', 'storage', 'storage/postgres'],
  'session/sync': ['protocol', 'storage', 'session/sync'],
  'session/live': ['protocol', 'storage', 'session/sync', 'session/live'],
  client: ['protocol', 'client'],
  gateway: [
    'protocol',
    'protocol/msgpack',
    'storage',
    'storage/sqlite',
    'storage/postgres',
    'session/sync',
    'session/live',
    'client',
    'gateway',
  ],
};

const PACKAGE_HOME: Readonly<Record<string, readonly string[]>> = {
  ws: ['gateway'],
  'uWebSockets.js': ['gateway'],
  'better-sqlite3': ['storage/sqlite'],
  pg: ['storage/postgres'],
  'pg-cursor': ['storage/postgres'],
  'pg-copy-streams': ['storage/postgres'],
  msgpackr: ['protocol/msgpack'],
  pino: ['gateway'],
  'cli-progress': ['gateway'],
  commander: ['gateway'],
  jose: ['gateway'],
  'prom-client': ['gateway'],
};
/** Folders that run in a browser: no Node built-ins, no packages. */
const BROWSER_SAFE = ['protocol', 'client'];

interface Edge {
  readonly file: string;
  readonly folder: string;
  readonly target: string;
}

function folderOf(path: string): string {
  const parts = relative(SRC, path).replaceAll('\\', '/').split('/');
  if (parts.length === 1) return 'root';
  const two = parts.slice(0, 2).join('/');
  return parts.length > 2 && two in ALLOWED ? two : parts[0]!;
}

function readEdges(): Edge[] {
  const files = readdirSync(SRC, { recursive: true, encoding: 'utf8' }).filter((file) =>
    file.endsWith('.ts'),
  );
  return files.flatMap((file) => {
    const path = join(SRC, file);
    // The compiler's own scan: code in comments, strings and templates does not count.
    const { importedFiles } = ts.preProcessFile(readFileSync(path, 'utf8'), true, true);
    return importedFiles.map(({ fileName }) => ({
      file: `src/${file.replaceAll('\\', '/')}`,
      folder: folderOf(path),
      target: fileName,
    }));
  });
}

const edges = readEdges();
const packageOf = (target: string): string =>
  target.startsWith('@') ? target.split('/').slice(0, 2).join('/') : target.split('/')[0]!;
const show = (edge: Edge): string => `${edge.file} -> ${edge.target}`;

describe('imports of src', () => {
  test('there are edges to check, in every folder that exists', () => {
    expect(edges.length).toBeGreaterThan(100);
  });

  test('relative imports follow the one direction', () => {
    const forbidden = edges.filter((edge) => {
      if (!edge.target.startsWith('.') || edge.folder === 'root') return false;
      const target = folderOf(resolve(dirname(join(ROOT, edge.file)), edge.target));
      return !(ALLOWED[edge.folder] ?? []).includes(target);
    });
    expect(forbidden.map(show)).toEqual([]);
  });

  test('nobody inside imports an index', () => {
    const barrels = edges.filter(
      (edge) => edge.target.startsWith('.') && /(^|\/)index\.ts$/.test(edge.target),
    );
    expect(barrels.filter((edge) => edge.file !== 'src/index.ts').map(show)).toEqual([]);
  });

  test('each heavy package has one home', () => {
    const strays = edges.filter((edge) => {
      if (edge.target.startsWith('.') || edge.target.startsWith('node:')) return false;
      const home = PACKAGE_HOME[packageOf(edge.target)];
      return home === undefined || !home.includes(edge.folder);
    });
    expect(strays.map(show)).toEqual([]);
  });

  test('protocol and client run in a browser: no Node built-ins, no packages', () => {
    const strays = edges.filter(
      (edge) =>
        (BROWSER_SAFE.includes(edge.folder) || edge.folder === 'protocol') && !edge.target.startsWith('.'),
    );
    expect(strays.map(show)).toEqual([]);
  });

  test('the SQLite driver is imported in one file', () => {
    const users = new Set(edges.filter((edge) => edge.target === 'better-sqlite3').map((edge) => edge.file));
    expect(users.size).toBeLessThanOrEqual(1);
  });
});
