/** The version of this package, as `package.json` says. The path is the same from `src` and from `dist`. */
import { readFileSync } from 'node:fs';

function readVersion(): string {
  const manifest: unknown = JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8'));
  return typeof manifest === 'object' && manifest !== null && 'version' in manifest
    ? String(manifest.version)
    : 'unknown';
}

export const PACKAGE_VERSION = readVersion();
