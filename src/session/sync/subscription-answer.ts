/**
 * How a subscription is answered (part 2.7), as a pure function of the request, its scopes and the log's bounds.
 *
 * Rows 3 and 6 of the table follow part 2.24 decisions 1 and 3: where a fresh pin would be needed for a client that keeps
 * rows of an older one, it is told `reset` and comes back with cursor −1, because only then it clears its rows first.
 *
 * Row 8, far behind: a cursor at or above the horizon is always answered by a replay in slices of `limitCommits`, however
 * long, never by segments. Segments over existing rows would let deleted ones survive (part 3, 3.8.2-2, R-081); a replay
 * is correct at any distance, and the horizon bounds that distance.
 */
import type { ResumeToken } from './resume-token.ts';
import type { EffectiveScopes } from './scopes.ts';

/** Whether the client still has to clear its rows, which it does at the first page of this response (§5.6). */
export type FirstPage = 'due' | 'delivered';

export type SubscriptionAnswer =
  | { readonly kind: 'revoked' }
  | { readonly kind: 'reset' }
  | { readonly kind: 'incremental' }
  | {
      readonly kind: 'bootstrap';
      /** `asOfCommitSeq` of every page, `nextCursor` of the section. */
      readonly pin: number;
      /** The next page starts after it. */
      readonly rowCursor: string | null;
      readonly firstPage: FirstPage;
    };

export interface AnswerInput {
  readonly table: string;
  readonly effective: EffectiveScopes;
  readonly cursor: number;
  /** `grown`: there are values that the client was not given changes of up to its cursor. */
  readonly scopes: 'known' | 'grown';
  readonly token: ResumeToken | 'absent' | 'unusable';
  /** Of the effective scopes and `params` as they are now; looked at only when there is a token. */
  readonly scopeDigest: string;
  readonly paramsDigest: string;
}

export interface LogBounds {
  readonly head: number;
  readonly horizon: number;
  /** Pin of a bootstrap that starts now: `horizon` ≤ pin ≤ `head`. */
  readonly freshPin: number;
}

export function answerSubscription(input: AnswerInput, log: LogBounds): SubscriptionAnswer {
  if (input.effective.status === 'revoked') return { kind: 'revoked' };
  if (input.token !== 'absent') return answerToken(input, input.token, log);
  if (input.cursor < 0) {
    return { kind: 'bootstrap', pin: log.freshPin, rowCursor: null, firstPage: 'due' };
  }
  if (input.cursor < log.horizon || input.cursor > log.head) return { kind: 'reset' };
  if (input.scopes === 'grown') return { kind: 'reset' };
  return { kind: 'incremental' };
}

function answerToken(
  input: AnswerInput,
  token: ResumeToken | 'unusable',
  log: LogBounds,
): SubscriptionAnswer {
  if (token === 'unusable' || !fits(token, input)) return { kind: 'reset' };
  const pinIsServed = token.asOfCommitSeq >= log.horizon && token.asOfCommitSeq <= log.head;
  if (pinIsServed) {
    const { asOfCommitSeq: pin, rowCursor } = token;
    return { kind: 'bootstrap', pin, rowCursor, firstPage: 'delivered' };
  }
  // No row of the old pin was delivered and the client has cleared: nothing of it can survive a silent restart.
  if (token.rowCursor === null) {
    return { kind: 'bootstrap', pin: log.freshPin, rowCursor: null, firstPage: 'delivered' };
  }
  return { kind: 'reset' };
}

function fits(token: ResumeToken, input: AnswerInput): boolean {
  return (
    token.tables.length === 1 &&
    token.tables[0] === input.table &&
    token.scopeDigest === input.scopeDigest &&
    token.paramsDigest === input.paramsDigest
  );
}
