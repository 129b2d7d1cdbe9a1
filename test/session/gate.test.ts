/** The serve gate as a pure function (part 4, 4.3). */
import { describe, expect, test } from 'vitest';
import { gateRefusal, serveGateRefusal } from '../../src/session/sync/gate.ts';

const open = { storedSchemaVersion: 3, logEpoch: 'e1' };
const running = { schemaVersion: 3, admittedEpoch: 'e1' };

describe('serveGateRefusal', () => {
  test('an open gate refuses nothing', () => {
    expect(serveGateRefusal(open, running)).toBeNull();
  });

  test.each([2, 4])('schema: the database is at version %d', (storedSchemaVersion) => {
    expect(serveGateRefusal({ ...open, storedSchemaVersion }, running)).toMatchObject({
      code: 'sync.schema_not_ready',
      httpStatus: 503,
      details: { storedSchemaVersion, runningSchemaVersion: 3 },
    });
  });

  test('epoch: the partition has another one than the request was admitted with', () => {
    expect(serveGateRefusal({ ...open, logEpoch: 'e2' }, running)).toMatchObject({
      code: 'sync.schema_not_ready',
      details: { logEpochChanged: true },
    });
  });

  test('the first of the table wins, and the message is one fixed text', () => {
    const both = { storedSchemaVersion: 4, logEpoch: 'e2' };
    expect(gateRefusal(both, running)?.kind).toBe('schema');
    const messages = [both, { ...open, logEpoch: 'e2' }].map(
      (state) => serveGateRefusal(state, running)?.message,
    );
    expect(new Set(messages).size).toBe(1);
  });
});
