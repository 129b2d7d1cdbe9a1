/** The state machine of a connection against the table written from part 3, 3.14. */
import { readFileSync } from 'node:fs';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { CLOSE_CODES } from '../../../src/protocol/close-codes.ts';
import { SessionMachine } from '../../../src/session/live/session-machine.ts';
import {
  type Outcome,
  SESSION_EVENTS,
  SESSION_STATES,
  type SessionEvent,
  type SessionState,
  TRANSITIONS,
} from '../../../src/session/live/session-state.ts';
import { SESSION_TABLE } from '../session-table.ts';

function render({ effect, next, suppressed, close }: Outcome): string {
  if (close !== null) return effect === 'close' ? `close ${close}` : `${effect}, close ${close}`;
  const flag = suppressed === 'keep' ? '' : suppressed === 'set' ? ' +suppressed' : ' -suppressed';
  return `${effect}${flag}${next === 'stay' ? '' : ` -> ${next}`}`;
}

const anyEvents = fc.array(fc.constantFrom(...SESSION_EVENTS), { maxLength: 40 });

function run(events: readonly SessionEvent[]) {
  const ends: (number | null)[] = [];
  const machine = new SessionMachine({ ended: (code) => void ends.push(code) });
  const states = events.map((event) => {
    machine.step(event);
    return machine.state;
  });
  return { machine, ends, states };
}

describe('transition table (3.14)', () => {
  test.each(SESSION_STATES)('state %s answers every event as written down', (state) => {
    const rendered = Object.fromEntries(
      SESSION_EVENTS.map((event) => [event, render(TRANSITIONS[state][event])]),
    );
    expect(rendered).toEqual(SESSION_TABLE[state]);
  });

  test('closes with known codes only, and closing always leads to closed', () => {
    for (const state of SESSION_STATES) {
      for (const event of SESSION_EVENTS) {
        const { close, next } = TRANSITIONS[state][event];
        if (close === null) continue;
        expect(CLOSE_CODES[close], `${state} ${event}`).toBeDefined();
        expect(next, `${state} ${event}`).toBe('closed');
      }
    }
  });
});

test('docs/SESSION.md shows the same table', () => {
  const page = readFileSync(new URL('../../../docs/SESSION.md', import.meta.url), 'utf8');
  const states = SESSION_STATES.filter((state) => state !== 'closed');
  const cell = (state: SessionState, event: SessionEvent): string => {
    const text = SESSION_TABLE[state][event];
    return text === 'impossible' ? '—' : text;
  };
  for (const event of SESSION_EVENTS) {
    expect(page).toContain(`| \`${event}\` | ${states.map((state) => cell(state, event)).join(' | ')} |`);
  }
  expect(new Set(SESSION_EVENTS.map((event) => SESSION_TABLE.closed[event]))).toEqual(new Set(['nothing']));
});

describe('invariants', () => {
  test('closed is final, and the end is told once', () => {
    fc.assert(
      fc.property(anyEvents, (events) => {
        const { states, ends } = run(events);
        const first = states.indexOf('closed');
        expect(states.slice(first === -1 ? states.length : first).every((state) => state === 'closed')).toBe(
          true,
        );
        expect(ends.length).toBe(first === -1 ? 0 : 1);
      }),
    );
  });

  test('open-live is never suppressed, open-behind always is', () => {
    fc.assert(
      fc.property(anyEvents, (events) => {
        const { machine } = run(events);
        if (machine.state === 'open-live') expect(machine.isSuppressed).toBe(false);
        if (machine.state === 'open-behind') expect(machine.isSuppressed).toBe(true);
      }),
    );
  });

  test('a delta leaves in open-live alone (R-020, R-061)', () => {
    const allowed = SESSION_STATES.filter((state) =>
      SESSION_EVENTS.some((event) => TRANSITIONS[state][event].effect === 'send-delta'),
    );
    expect(allowed).toEqual(['open-live']);
  });

  test('nothing but an ack that reaches observed, or the greeting, ends suppression (3.5.2-6, R-022, R-023)', () => {
    const clearing = SESSION_STATES.flatMap((state) =>
      SESSION_EVENTS.filter((event) => TRANSITIONS[state][event].suppressed === 'clear'),
    );
    expect([...new Set(clearing)].sort()).toEqual(['ack-reached', 'loaded-live']);
  });

  test('every wake-up suppresses (3.5.2-4d)', () => {
    for (const state of SESSION_STATES) {
      for (const event of SESSION_EVENTS) {
        const { effect, suppressed } = TRANSITIONS[state][event];
        if (effect === 'wake') expect(suppressed, `${state} ${event}`).toBe('set');
      }
    }
  });
});
