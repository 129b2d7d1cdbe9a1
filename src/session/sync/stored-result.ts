/**
 * Outcomes of commits as the text kept with their idempotency key (§2.3). Reading gives back exactly what was written, so a
 * replay is byte-equivalent (S-037, S-132); what cannot be read is `null`, never a guess (S-127).
 */
import { toBase64 } from '../../protocol/base64.ts';
import type { OpResult, PushStatus } from '../../protocol/frames.ts';
import type { RejectionRecord } from './push-rejection.ts';
import type { PushOutcome } from './sync-deps.ts';

export type StoredOutcome =
  | { readonly status: 'applied'; readonly commitSeq: number; readonly operations: number }
  | { readonly status: 'rejected'; readonly record: RejectionRecord; readonly detailsJson: string | null };

const FORMAT = 1;
const BASE64_PADDING = /={0,2}$/;

export function encodeStoredOutcome(outcome: StoredOutcome): string {
  if (outcome.status === 'applied') {
    return `{"format":${FORMAT},"applied":{"commitSeq":${outcome.commitSeq},"operations":${outcome.operations}}}`;
  }
  const { record, detailsJson } = outcome;
  const details = detailsJson === null ? {} : { details: detailsJson };
  const rejected =
    record.status === 'conflict' ? { ...record, serverRow: toBase64(record.serverRow) } : record;
  return JSON.stringify({ format: FORMAT, rejected, ...details });
}

/** `null` for everything that `encodeStoredOutcome` does not write. */
export function decodeStoredOutcome(text: string): StoredOutcome | null {
  const value = parse(text);
  if (!isRecord(value) || value.format !== FORMAT) return null;
  if (isRecord(value.applied)) {
    const { commitSeq, operations } = value.applied;
    return isCount(commitSeq) && isCount(operations) ? { status: 'applied', commitSeq, operations } : null;
  }
  const record = isRecord(value.rejected) ? readRejection(value.rejected) : null;
  const detailsJson = value.details ?? null;
  if (record === null || (detailsJson !== null && typeof detailsJson !== 'string')) return null;
  return { status: 'rejected', record, detailsJson };
}

/** The answer to one push of this commit: `applied` for the delivery that ran, `cached` for each replay. */
export function answerOf(
  outcome: StoredOutcome,
  delivery: { readonly clientCommitId: string; readonly appliedAs: Exclude<PushStatus, 'rejected'> },
): PushOutcome {
  const { clientCommitId } = delivery;
  if (outcome.status === 'applied') {
    const { commitSeq } = outcome;
    const results = appliedRecords(outcome.operations);
    return {
      result: { type: 'PUSH_RESULT', clientCommitId, status: delivery.appliedAs, commitSeq, results },
      details: null,
    };
  }
  const { record, detailsJson } = outcome;
  const entries = detailsJson === null ? null : [{ opIndex: record.opIndex, detailsJson }];
  return {
    result: { type: 'PUSH_RESULT', clientCommitId, status: 'rejected', results: [record] },
    details: entries === null ? null : { type: 'PUSH_RESULT_DETAILS', clientCommitId, entries },
  };
}

/** Bytes of the row in an answer: the only part of it that can be large. */
export function answerBytes({ result }: PushOutcome): number {
  const [first] = result.results;
  return first?.status === 'conflict' ? first.serverRow.length : 0;
}

/** Lists of applied records say nothing but their length, so short ones are shared between answers. */
const SHARED_LENGTH_MAX = 32;
const sharedLists: OpResult[][] = [];

function appliedRecords(operations: number): readonly OpResult[] {
  if (operations > SHARED_LENGTH_MAX) return newAppliedRecords(operations);
  sharedLists[operations] ??= newAppliedRecords(operations);
  return sharedLists[operations];
}

function newAppliedRecords(operations: number): OpResult[] {
  return Array.from({ length: operations }, (_, opIndex) => ({ opIndex, status: 'applied' }));
}

function readRejection(value: Readonly<Record<string, unknown>>): RejectionRecord | null {
  const { opIndex, status, code, message } = value;
  if (!isIndex(opIndex) || typeof code !== 'string' || typeof message !== 'string') return null;
  if (status === 'error') {
    const { retryable } = value;
    return typeof retryable === 'boolean' ? { opIndex, status, code, message, retryable } : null;
  }
  const { serverVersion } = value;
  const serverRow = fromBase64(value.serverRow);
  if (status !== 'conflict' || !isCount(serverVersion) || serverRow === null) return null;
  return { opIndex, status, code, message, serverVersion, serverRow };
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

/** Padded base64 only: `atob` would forgive white space, which shows in the length. */
function fromBase64(text: unknown): Uint8Array | null {
  if (typeof text !== 'string' || text.length % 4 !== 0) return null;
  const padding = BASE64_PADDING.exec(text)![0].length;
  try {
    const binary = atob(text);
    if (binary.length !== (text.length / 4) * 3 - padding) return null;
    return Uint8Array.from(binary, (unit) => unit.charCodeAt(0));
  } catch {
    return null;
  }
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function isIndex(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0;
}

function isCount(value: unknown): value is number {
  return isIndex(value) && value >= 1;
}
