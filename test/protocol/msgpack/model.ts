/** MessagePack as plainly as its specification says it, sharing no code with `src`: what vectors and tests are made with. */

/** `$bin` is hex, `$float` a float64, `$int` an integer that a number cannot hold, `$raw` hex of bytes that stand as they are. */
export type Model =
  | null
  | boolean
  /** An integer. */
  | number
  | string
  | readonly Model[]
  | { readonly [key: string]: Model };

const u = (value: bigint | number, bytes: number): Buffer => {
  const buffer = Buffer.alloc(8);
  buffer.writeBigUInt64BE(BigInt.asUintN(64, BigInt(value)));
  return buffer.subarray(8 - bytes);
};
const head = (byte: number, ...rest: readonly Buffer[]): Buffer =>
  Buffer.concat([Buffer.from([byte]), ...rest]);

function packInt(value: bigint): Buffer {
  if (value >= 0n) {
    if (value < 0x80n) return u(value, 1);
    if (value < 0x100n) return head(0xcc, u(value, 1));
    if (value < 0x1_0000n) return head(0xcd, u(value, 2));
    return value < 0x1_0000_0000n ? head(0xce, u(value, 4)) : head(0xcf, u(value, 8));
  }
  if (value >= -0x20n) return u(value, 1);
  if (value >= -0x80n) return head(0xd0, u(value, 1));
  if (value >= -0x8000n) return head(0xd1, u(value, 2));
  return value >= -0x8000_0000n ? head(0xd2, u(value, 4)) : head(0xd3, u(value, 8));
}

/** `leads`: for the lengths that the lead byte holds, then for 8 (0 = not there), 16 and 32 bits. */
function sized(length: number, leads: readonly [number, number, number, number, number]): Buffer {
  const [fix, fixMax, lead8, lead16, lead32] = leads;
  if (length <= fixMax) return Buffer.from([fix | length]);
  if (lead8 !== 0 && length < 0x100) return head(lead8, u(length, 1));
  return length < 0x1_0000 ? head(lead16, u(length, 2)) : head(lead32, u(length, 4));
}

export function pack(value: Model): Buffer {
  if (value === null) return Buffer.from([0xc0]);
  if (typeof value === 'boolean') return Buffer.from([value ? 0xc3 : 0xc2]);
  if (typeof value === 'number') return packInt(BigInt(value));
  if (typeof value === 'string') {
    const text = Buffer.from(value, 'utf8');
    return Buffer.concat([sized(text.length, [0xa0, 31, 0xd9, 0xda, 0xdb]), text]);
  }
  if (Array.isArray(value)) {
    return Buffer.concat([sized(value.length, [0x90, 15, 0, 0xdc, 0xdd]), ...value.map(pack)]);
  }
  const members = Object.entries(value as { readonly [key: string]: Model });
  const [only] = members;
  if (members.length === 1 && only !== undefined && only[0].startsWith('$'))
    return packSpecial(only[0], only[1]);
  const pairs = members.flatMap(([key, member]) => [pack(key), pack(member)]);
  return Buffer.concat([sized(members.length, [0x80, 15, 0, 0xde, 0xdf]), ...pairs]);
}

function packSpecial(kind: string, value: Model): Buffer {
  const text = String(value);
  if (kind === '$int') return packInt(BigInt(text));
  if (kind === '$raw') return Buffer.from(text, 'hex');
  if (kind === '$bin') {
    const bytes = Buffer.from(text, 'hex');
    return Buffer.concat([sized(bytes.length, [0, -1, 0xc4, 0xc5, 0xc6]), bytes]);
  }
  const float = Buffer.alloc(9);
  float[0] = 0xcb;
  float.writeDoubleBE(text === '-0' ? -0 : Number(text), 1);
  return float;
}

export const packed = (value: Model): Uint8Array => Uint8Array.from(pack(value));
