/** Stored scopes as the text of a `scopes` column. Equal scopes give equal text. */
import type { StoredScopes } from '../protocol/frames.ts';

export function scopesText(scopes: StoredScopes): string {
  const variables = Object.keys(scopes);
  if (variables.length === 1) {
    const variable = variables[0]!;
    return `{${JSON.stringify(variable)}:${JSON.stringify(scopes[variable])}}`;
  }
  const members = variables
    .sort()
    .map((variable) => `${JSON.stringify(variable)}:${JSON.stringify(scopes[variable])}`);
  return `{${members.join(',')}}`;
}

/** Parses each distinct text once: the rows of one read mostly share a few scopes. */
export class ScopesParser {
  readonly #known = new Map<string, StoredScopes>();

  parse(text: string): StoredScopes {
    let scopes = this.#known.get(text);
    if (scopes === undefined) {
      scopes = parseScopes(text);
      this.#known.set(text, scopes);
    }
    return scopes;
  }
}

export function parseScopes(text: string): StoredScopes {
  return JSON.parse(text) as StoredScopes;
}
