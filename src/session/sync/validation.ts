/** How a host's validators reject a write (§6.7, §6.8). */
import { isWellFormed } from '../../protocol/bytes.ts';
import { normalizeResultDetails, type ResultDetails } from '../../protocol/result-details.ts';

/** Codes of the catalogue and of the client's own failures: a host code is plainly neither (part 1.11 rule 4). */
const RESERVED_PREFIXES = ['sync.', 'blob.', 'operation.', 'presence.', 'client.'];
const CODE_CHARS_MAX = 256;
const MESSAGE_CHARS_MAX = 4_096;
const DEFAULT_MESSAGE = 'the write was rejected';

/**
 * Thrown by a row validator to reject the operation, or by a commit validator to reject operation 0. Constructing one with a
 * reserved or malformed code, or with details outside their limits, throws a `RangeError`: a host programming error
 * (S-130, S-139). The message reaches the client; the details are stored with the outcome and replay identically.
 */
export class ValidationRejection extends Error {
  override readonly name: string = 'ValidationRejection';
  readonly code: string;
  /** Normalized JSON text (§6.3.1), or `null`. */
  readonly detailsJson: string | null;

  constructor(code: string, message: string = DEFAULT_MESSAGE, details?: ResultDetails) {
    assertHostCode(code);
    assertText(message, { what: 'message', charsMax: MESSAGE_CHARS_MAX });
    super(message);
    this.code = code;
    this.detailsJson = details === undefined ? null : normalizeResultDetails(details);
  }
}

/** As `ValidationRejection`, against one operation of the commit. An index outside the commit makes it a generic failure (S-151). */
export class CommitValidationRejection extends ValidationRejection {
  override readonly name = 'CommitValidationRejection';
  readonly opIndex: number;

  constructor(opIndex: number, code: string, message?: string, details?: ResultDetails) {
    super(code, message, details);
    this.opIndex = opIndex;
  }
}

function assertHostCode(code: string): void {
  assertText(code, { what: 'code', charsMax: CODE_CHARS_MAX });
  if (code === '') throw new RangeError('the code of a rejection is empty');
  const reserved = RESERVED_PREFIXES.find((prefix) => code.startsWith(prefix));
  if (reserved !== undefined) {
    throw new RangeError(`the code of a rejection begins with the reserved prefix ${reserved}`);
  }
}

function assertText(text: unknown, bound: { readonly what: string; readonly charsMax: number }): void {
  if (typeof text !== 'string' || text.length > bound.charsMax || !isWellFormed(text)) {
    throw new RangeError(
      `the ${bound.what} of a rejection is not well-formed text of at most ${bound.charsMax} characters`,
    );
  }
}
