/** The real command line in a process of its own, as an operator runs it. */
import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { onTestFinished } from 'vitest';

const BIN = fileURLToPath(new URL('../../../src/gateway/bin.ts', import.meta.url));
const TSX = import.meta.resolve('tsx');

export interface CliRun {
  readonly code: number | null;
  readonly out: string;
  readonly err: string;
}

/** Ends with the test. */
export function newFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'tidegate-cli-'));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

export function runProcess(
  args: readonly string[],
  { folder, env = {} }: { readonly folder: string; readonly env?: Readonly<Record<string, string>> },
): Promise<CliRun> {
  const child = spawn(process.execPath, ['--import', TSX, BIN, ...args], {
    cwd: folder,
    stdio: ['ignore', 'pipe', 'pipe'],
    env: { PATH: process.env.PATH, ...env },
  });
  let out = '';
  let err = '';
  child.stdout.on('data', (chunk: Buffer) => {
    out += chunk.toString();
  });
  child.stderr.on('data', (chunk: Buffer) => {
    err += chunk.toString();
  });
  return new Promise((resolve, reject) => {
    child.once('error', reject);
    child.once('close', (code) => resolve({ code, out, err }));
  });
}
