/** The server's incremental writer against the whole-message encoder. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { encodeChangeBody } from '../../src/protocol/commit-codec.ts';
import { encodeFrame } from '../../src/protocol/frame-codecs.ts';
import { FrameWriter } from '../../src/protocol/frame-writer.ts';
import { decodeMessage } from '../../src/protocol/message.ts';
import { commit } from './arbitraries.ts';
import { concat, equalBytes } from './bytes-of.ts';
import { codeOf } from './faults.ts';

const HEAD = { commitSeq: 5, createdAtMs: 9, actorId: 'a', tables: ['t'] } as const;

describe('FrameWriter', () => {
  it('builds a commit out of bodies that were encoded before (property)', () => {
    fc.assert(
      fc.property(commit, (frame) => {
        const writer = new FrameWriter(1, 8);
        writer.beginCommit(frame);
        for (const change of frame.changes) writer.change(change.tableIndex, encodeChangeBody(change));
        writer.endCommit();
        expect(equalBytes(writer.take(), encodeFrame(1, frame))).toBe(true);
      }),
    );
  });

  it('takes piece by piece: tag, envelope, sections, END', () => {
    const bodies = [
      encodeChangeBody({ rowId: 'r', op: 'delete', scopes: { p: '1' } }),
      encodeChangeBody({
        rowId: 'q',
        op: 'upsert',
        rowVersion: 2,
        row: new Uint8Array([0]),
        scopes: { p: '1' },
      }),
    ];
    const writer = new FrameWriter(2);
    writer.tag(0x01);
    writer.envelope('response');
    writer.frame({ type: 'RESP_HEADER', logEpoch: 'e', resetRequired: false });
    expect(writer.lengthBytes).toBe(1 + 8 + 5 + 8);
    const first = writer.take();
    expect(writer.lengthBytes).toBe(0);
    writer.frame({
      type: 'SUB_START',
      id: 's',
      status: 'active',
      reasonCode: '',
      effectiveScopes: {},
      bootstrap: false,
    });
    writer.beginCommit(HEAD);
    for (const body of bodies) writer.change(0, body);
    writer.endCommit();
    writer.frame({ type: 'SUB_END', nextCursor: 5 });
    writer.end();
    const { frames } = decodeMessage(concat(first.subarray(1), writer.take()));
    expect(frames.map((frame) => frame.type)).toStrictEqual([
      'RESP_HEADER',
      'SUB_START',
      'COMMIT',
      'SUB_END',
    ]);
    expect(frames[2]).toMatchObject({ ...HEAD, changes: [{ rowId: 'r' }, { rowId: 'q', rowVersion: 2 }] });
  });

  it('what was taken does not change when writing goes on', () => {
    const writer = new FrameWriter(1);
    writer.end();
    const taken = writer.take();
    writer.raw(new Uint8Array([9, 9, 9, 9, 9]));
    expect(taken).toStrictEqual(new Uint8Array(5));
  });

  it('leaves nothing of a frame that it refused', () => {
    const writer = new FrameWriter(2, 16);
    const header = { type: 'RESP_HEADER', logEpoch: 'e'.repeat(40), resetRequired: false } as const;
    writer.frame(header);
    const { lengthBytes } = writer;
    expect(codeOf(() => writer.frame({ type: 'LEASE', leaseId: 'l'.repeat(50), expiresAtMs: 0.5 }))).toBe(
      'EncodeError',
    );
    expect(codeOf(() => writer.beginCommit({ ...HEAD, actorId: '\ud800' }))).toBe('EncodeError');
    expect(writer.lengthBytes).toBe(lengthBytes);
    writer.end();
    expect(equalBytes(writer.take(), concat(encodeFrame(2, header), new Uint8Array(5)))).toBe(true);
  });

  it('refuses misuse', () => {
    const writer = new FrameWriter(1);
    const body = encodeChangeBody({ rowId: 'r', op: 'delete', scopes: {} });
    expect(codeOf(() => writer.change(0, body))).toBe('EncodeError');
    expect(codeOf(() => writer.endCommit())).toBe('EncodeError');
    writer.beginCommit(HEAD);
    expect(codeOf(() => writer.change(1, body))).toBe('EncodeError');
    expect(codeOf(() => writer.take())).toBe('EncodeError');
    expect(codeOf(() => writer.beginCommit(HEAD))).toBe('EncodeError');
    expect(codeOf(() => writer.frame({ type: 'SUB_END', nextCursor: 1 }))).toBe('EncodeError');
    expect(codeOf(() => writer.raw(body))).toBe('EncodeError');
    expect(codeOf(() => writer.end())).toBe('EncodeError');
  });

  it.each([
    { rowId: 'r', op: 'upsert', scopes: {} },
    { rowId: 'r', op: 'upsert', rowVersion: 1, scopes: {} },
    { rowId: 'r', op: 'delete', row: new Uint8Array(1), scopes: {} },
  ] as const)('a body keeps tie 2 (case %#)', (change) => {
    expect(codeOf(() => encodeChangeBody(change))).toBe('EncodeError');
  });
});
