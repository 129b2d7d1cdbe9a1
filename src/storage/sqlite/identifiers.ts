/** Names inside SQL texts. Values are always bound; only names of the compiled schema ever become text. */

export function quoted(name: string): string {
  return `"${name.replaceAll('"', '""')}"`;
}

const PLAIN_NAME = /^[A-Za-z_][A-Za-z0-9_]*$/;

/**
 * A condition on the one value that a JSON scope column holds for `variable`: it lies in a bound JSON list. Takes two
 * parameters, made by `scopeConditionParams`.
 */
export function scopeCondition(column: string, variable: string): string {
  const value = PLAIN_NAME.test(variable)
    ? `json_extract(${column}, ?)`
    : `(SELECT member.value FROM json_each(${column}) AS member WHERE member.key = ?)`;
  return `${value} IN (SELECT wanted.value FROM json_each(?) AS wanted)`;
}

export function scopeConditionParams(variable: string, values: readonly string[]): readonly [string, string] {
  return [PLAIN_NAME.test(variable) ? `$.${variable}` : variable, JSON.stringify(values)];
}
