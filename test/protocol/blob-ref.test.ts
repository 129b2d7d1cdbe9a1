/** BlobRef text (§5.9.1, part 1.6, part 1.17 W-g). */
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { blobRefText, isBlobId, parseBlobRef } from '../../src/protocol/blob-ref.ts';
import { codeOf } from './faults.ts';

const HEX = '0123456789abcdef'.repeat(4);
const ID = `sha256:${HEX}`;

describe('legal BlobRefs', () => {
  test.each([
    [{ blobId: ID, byteLength: 0 }, `{"blobId":"${ID}","byteLength":0}`],
    [
      { blobId: ID, byteLength: 7, mediaType: 'image/png' },
      `{"blobId":"${ID}","byteLength":7,"mediaType":"image/png"}`,
    ],
    [{ blobId: ID, byteLength: 7, name: 'a.png' }, `{"blobId":"${ID}","byteLength":7,"name":"a.png"}`],
    [
      { blobId: ID, byteLength: Number.MAX_SAFE_INTEGER, mediaType: '', name: 'é"\\' },
      `{"blobId":"${ID}","byteLength":9007199254740991,"mediaType":"","name":"é\\"\\\\"}`,
    ],
  ])('the four key sets, canonical: %o', (ref, text) => {
    expect(parseBlobRef(text)).toEqual(ref);
    expect(blobRefText(ref)).toBe(text);
  });

  test('W-g: white space between tokens is tolerated', () => {
    const text = `\n{ "blobId" :\t"${ID}" ,\r\n "byteLength" : 12 , "name" : "x" }\n`;
    expect(parseBlobRef(text)).toEqual({ blobId: ID, byteLength: 12, name: 'x' });
  });

  test('string escapes are read as JSON reads them', () => {
    const text = `{"blobId":"${ID}","byteLength":1,"name":"\\u00e9\\/\\n\\ud83d\\ude00"}`;
    expect(parseBlobRef(text).name).toBe('é/\n😀');
  });

  test('a very long name neither overflows nor backtracks', () => {
    const name = '\\"x'.repeat(500_000);
    expect(parseBlobRef(blobRefText({ blobId: ID, byteLength: 1, name })).name).toBe(name);
  });

  test('property: canonical text parses to what it was made of', () => {
    const text = fc.string({ unit: 'binary' });
    const ref = fc.record(
      { blobId: fc.constant(ID), byteLength: fc.maxSafeNat(), mediaType: text, name: text },
      { requiredKeys: ['blobId', 'byteLength'], noNullPrototype: true },
    );
    fc.assert(
      fc.property(ref, (value) => {
        expect(parseBlobRef(blobRefText(value))).toEqual(value);
      }),
    );
  });
});

describe('faults of a BlobRef, each sync.invalid_request', () => {
  test.each([
    ['not JSON', 'sha256'],
    ['empty text', ''],
    ['a list', '[]'],
    ['a string', `"${ID}"`],
    ['null', 'null'],
    ['an empty object', '{}'],
    ['blobId missing', '{"byteLength":1}'],
    ['byteLength missing', `{"blobId":"${ID}"}`],
    ['blobId without its prefix', `{"blobId":"${HEX}","byteLength":1}`],
    ['blobId in upper case', `{"blobId":"sha256:${HEX.toUpperCase()}","byteLength":1}`],
    ['blobId one digit short', `{"blobId":"${ID.slice(0, -1)}","byteLength":1}`],
    ['blobId one digit long', `{"blobId":"${ID}0","byteLength":1}`],
    ['blobId followed by a line end', `{"blobId":"${ID}\\n","byteLength":1}`],
    ['blobId not a string', '{"blobId":1,"byteLength":1}'],
    ['byteLength a string', `{"blobId":"${ID}","byteLength":"1"}`],
    ['byteLength null', `{"blobId":"${ID}","byteLength":null}`],
    ['byteLength negative', `{"blobId":"${ID}","byteLength":-1}`],
    ['byteLength minus zero', `{"blobId":"${ID}","byteLength":-0}`],
    ['byteLength beyond 2^53-1', `{"blobId":"${ID}","byteLength":9007199254740992}`],
    ['byteLength a fraction', `{"blobId":"${ID}","byteLength":1.5}`],
    ['W-g: byteLength as 1.0', `{"blobId":"${ID}","byteLength":1.0}`],
    ['W-g: byteLength as 1e3', `{"blobId":"${ID}","byteLength":1e3}`],
    ['byteLength with a leading zero', `{"blobId":"${ID}","byteLength":01}`],
    ['mediaType not a string', `{"blobId":"${ID}","byteLength":1,"mediaType":null}`],
    ['name not a string', `{"blobId":"${ID}","byteLength":1,"name":7}`],
    ['unknown key', `{"blobId":"${ID}","byteLength":1,"size":1}`],
    ['unknown key at the end', `{"blobId":"${ID}","byteLength":1,"name":"x","size":1}`],
    ['byteLength before blobId', `{"byteLength":1,"blobId":"${ID}"}`],
    ['name before mediaType', `{"blobId":"${ID}","byteLength":1,"name":"x","mediaType":"y"}`],
    ['W-g: blobId twice', `{"blobId":"${ID}","blobId":"${ID}","byteLength":1}`],
    ['W-g: blobId again at the end', `{"blobId":"${ID}","byteLength":1,"blobId":"${ID}"}`],
    ['W-g: name twice', `{"blobId":"${ID}","byteLength":1,"name":"x","name":"x"}`],
    ['a key written with an escape', `{"\\u0062lobId":"${ID}","byteLength":1}`],
    ['trailing comma', `{"blobId":"${ID}","byteLength":1,}`],
    ['text after it', `{"blobId":"${ID}","byteLength":1}{}`],
    ['never closed', `{"blobId":"${ID}","byteLength":1`],
    ['string never closed', `{"blobId":"${ID}","byteLength":1,"name":"x}`],
    ['string ends in a backslash', `{"blobId":"${ID}","byteLength":1,"name":"x\\`],
    ['control character in a string', `{"blobId":"${ID}","byteLength":1,"name":"\u0001"}`],
    ['bad escape', `{"blobId":"${ID}","byteLength":1,"name":"\\x"}`],
    ['a no-break space between tokens', `{\u00a0"blobId":"${ID}","byteLength":1}`],
    ['a byte order mark in front', `\ufeff{"blobId":"${ID}","byteLength":1}`],
  ])('%s', (_fault, text) => {
    expect(codeOf(() => parseBlobRef(text))).toBe('sync.invalid_request');
  });

  test('property: what parses is JSON with just these members', () => {
    const mutated = fc
      .tuple(fc.nat(110), fc.constantFrom('', ' ', '"', ',', '1', '}', '\\', 'e'), fc.nat(2))
      .map(([at, insert, remove]) => {
        const text = `{"blobId":"${ID}","byteLength":10,"name":"a"}`;
        return text.slice(0, at) + insert + text.slice(at + remove);
      });
    fc.assert(
      fc.property(mutated, (text) => {
        let ref: unknown;
        try {
          ref = parseBlobRef(text);
        } catch {
          return;
        }
        expect(ref).toEqual(JSON.parse(text));
      }),
    );
  });
});

test('isBlobId takes the whole text', () => {
  expect([ID, `${ID}\n`, ` ${ID}`, `x${ID}`].map(isBlobId)).toEqual([true, false, false, false]);
});
