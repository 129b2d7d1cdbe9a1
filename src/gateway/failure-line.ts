/** What a command says about its failure: one line, with a stable code where there is one. */
import { SyncError } from '../protocol/errors.ts';
import { StorageError } from '../storage/storage-error.ts';
import { messageOf } from './config-error.ts';

const CAUSE_CHARACTERS_MAX = 300;

/** `secrets` never appear in it, whoever put them into a message. */
export function failureLine(failure: unknown, secrets: readonly string[]): string {
  const line = describe(failure).replaceAll(/\s+/g, ' ').trim();
  return secrets
    .filter((secret) => secret !== '')
    .reduce((text, secret) => text.replaceAll(secret, '***'), line);
}

function describe(failure: unknown): string {
  if (failure instanceof StorageError) {
    const cause = causeText(failure.cause).slice(0, CAUSE_CHARACTERS_MAX);
    return `${failure.code}: ${failure.message}${cause === '' ? '' : ` (${cause})`}`;
  }
  if (failure instanceof SyncError) return `${failure.code}: ${failure.message}`;
  return messageOf(failure);
}

/** A connection that was tried at several addresses fails without a message of its own. */
function causeText(cause: unknown): string {
  if (cause instanceof AggregateError) return cause.errors.map(messageOf).join('; ');
  return cause instanceof Error ? cause.message : '';
}

/** What of a storage url must not be shown: its password as written and as meant, and the url itself. */
export function secretsOf(storageUrl: string | undefined): readonly string[] {
  if (storageUrl === undefined || !/^postgres(ql)?:/.test(storageUrl)) return [];
  const written = [/^[^:]+:\/\/[^:@/]*:([^@]*)@/, /[?&]password=([^&#]*)/].map(
    (pattern) => pattern.exec(storageUrl)?.[1] ?? '',
  );
  return [storageUrl, ...written, ...written.map(decoded)];
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch (failure) {
    if (failure instanceof URIError) return text;
    throw failure;
  }
}
