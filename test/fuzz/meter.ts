/**
 * Counts what reading reserves. Two counts, both deterministic, unlike the memory figures of a process:
 *
 * - every `new Uint8Array(n)` asked for while an input is read, through a proxy in the place of the global constructor;
 * - the weight of what was decoded: 8 bytes per value, 2 per UTF-16 unit, 0 for a view of the input.
 */

/** A block for small results, which many inputs share, and the least that a growing buffer takes. */
const FIXED_BYTES = 48 * 1_024;
const RESERVED_PER_INPUT_BYTE = 8;
const WEIGHT_PER_INPUT_BYTE = 64;
const WEIGHT_FIXED_BYTES = 1_024;
const VALUE_BYTES = 8;
const UNIT_BYTES = 2;

export class AllocationMeter {
  readonly #real = globalThis.Uint8Array;
  #reserved = 0;

  install(): void {
    const count = (bytes: number): void => {
      this.#reserved += bytes;
    };
    globalThis.Uint8Array = new Proxy(this.#real, {
      construct(target, args: unknown[]) {
        if (typeof args[0] === 'number') count(args[0]);
        return Reflect.construct(target, args) as object;
      },
    });
  }

  remove(): void {
    globalThis.Uint8Array = this.#real;
  }

  begin(): void {
    this.#reserved = 0;
  }

  /** What is wrong, or `null`. */
  judge(inputBytes: number): string | null {
    const limit = FIXED_BYTES + RESERVED_PER_INPUT_BYTE * inputBytes;
    return this.#reserved > limit
      ? `reserved ${this.#reserved} bytes for ${inputBytes} bytes of input`
      : null;
  }
}

/** Fails when `value` weighs more than a small multiple of the input it was decoded from. */
export function assertWeight(value: unknown, inputBytes: number): void {
  const limit = WEIGHT_FIXED_BYTES + WEIGHT_PER_INPUT_BYTE * inputBytes;
  const weight = weigh(value);
  if (weight > limit) throw new Error(`decoded ${weight} bytes from ${inputBytes}`);
}

function weigh(value: unknown): number {
  if (typeof value === 'string') return VALUE_BYTES + UNIT_BYTES * value.length;
  if (typeof value !== 'object' || value === null || value instanceof Uint8Array) return VALUE_BYTES;
  let weight = VALUE_BYTES;
  for (const [key, member] of Object.entries(value))
    weight += VALUE_BYTES + UNIT_BYTES * key.length + weigh(member);
  return weight;
}
