/** The golden vectors (part 1.15), read by their manifests. */
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

export type VectorKind = 'request' | 'response' | 'segment' | 'realtime';

interface ManifestCase {
  readonly name: string;
  readonly bin?: string;
  readonly json?: string;
}

interface Manifest {
  readonly kind: VectorKind;
  readonly cases: readonly ManifestCase[];
  readonly invalid: readonly (ManifestCase & { readonly error: string })[];
}

export interface BinaryCase {
  readonly name: string;
  readonly bytes: Uint8Array;
  readonly rendering: unknown;
}

export interface InvalidCase {
  readonly name: string;
  readonly bytes: Uint8Array;
  readonly error: string;
}

function path(kind: VectorKind, file: string): string {
  return fileURLToPath(new URL(`../vectors/${kind}/${file}`, import.meta.url));
}

function manifest(kind: VectorKind): Manifest {
  return JSON.parse(readFileSync(path(kind, 'manifest.json'), 'utf8')) as Manifest;
}

/** A copy of its own, not a slice of a pool, so that a read past the end shows. */
function bytesOf(kind: VectorKind, file: string): Uint8Array {
  return new Uint8Array(readFileSync(path(kind, file)));
}

export function vectorText(kind: VectorKind, file: string): string {
  return readFileSync(path(kind, file), 'utf8');
}

export function validCases(kind: Exclude<VectorKind, 'realtime'>): BinaryCase[] {
  return manifest(kind).cases.map(({ name, bin, json }) => ({
    name,
    bytes: bytesOf(kind, bin!),
    rendering: JSON.parse(vectorText(kind, json!)),
  }));
}

export function invalidCases(kind: Exclude<VectorKind, 'realtime'>): InvalidCase[] {
  return manifest(kind).invalid.map(({ name, bin, error }) => ({ name, bytes: bytesOf(kind, bin!), error }));
}

export function realtimeCases(): {
  readonly valid: readonly { readonly name: string; readonly text: string }[];
  readonly invalid: readonly { readonly name: string; readonly text: string; readonly error: string }[];
} {
  const { cases, invalid } = manifest('realtime');
  return {
    valid: cases.map(({ name, json }) => ({ name, text: vectorText('realtime', json!) })),
    invalid: invalid.map(({ name, json, error }) => ({ name, text: vectorText('realtime', json!), error })),
  };
}

export function vector(kind: Exclude<VectorKind, 'realtime'>, name: string): Uint8Array {
  return bytesOf(kind, `${name}.bin`);
}
