/** The client type-checks with the browser's library alone: nothing of Node, not even its types. */
import { fileURLToPath } from 'node:url';
import ts from 'typescript';
import { expect, test } from 'vitest';

const ENTRY = fileURLToPath(new URL('../../src/client/index.ts', import.meta.url));
const PROBE = fileURLToPath(new URL('./browser-probe.ts', import.meta.url));

const PROBE_TEXT = `
import { createClient, type FetchFunction, type WebSocketConstructor } from '../../src/client/index.ts';
export const socket: WebSocketConstructor = WebSocket;
export const fetching: FetchFunction = (url, init) => fetch(url, init);
const client = createClient<{ tasks: { id: string; note?: string | null } }>({
  url: location.origin,
  schema: { version: 1, tables: [] },
});
client.mutate([{ table: 'tasks', op: 'upsert', row: { id: 'a' } }]);
// @ts-expect-error: no such table
client.rows('other');
// @ts-expect-error: not a column's type
client.mutate([{ table: 'tasks', op: 'upsert', row: { id: 7 } }]);
`;

test('with the DOM library and no other types; the browser has what the client asks for', () => {
  const options: ts.CompilerOptions = {
    target: ts.ScriptTarget.ES2022,
    lib: ['lib.es2023.d.ts', 'lib.dom.d.ts'],
    module: ts.ModuleKind.ESNext,
    moduleResolution: ts.ModuleResolutionKind.Bundler,
    types: [],
    strict: true,
    noUncheckedIndexedAccess: true,
    allowImportingTsExtensions: true,
    noEmit: true,
    skipLibCheck: true,
  };
  const host = ts.createCompilerHost(options);
  const { getSourceFile, fileExists } = host;
  host.fileExists = (path) => path === PROBE || fileExists(path);
  host.getSourceFile = (path, version) =>
    path === PROBE ? ts.createSourceFile(path, PROBE_TEXT, version) : getSourceFile(path, version);
  const program = ts.createProgram([ENTRY, PROBE], options, host);
  const messages = ts
    .getPreEmitDiagnostics(program)
    .map(
      ({ file, messageText }) => `${file?.fileName}: ${ts.flattenDiagnosticMessageText(messageText, ' ')}`,
    );
  expect(messages).toEqual([]);
}, 120_000);
