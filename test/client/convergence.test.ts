/** Whatever happens to three clients, in the end they show the same rows, and those are the server's. */
import fc from 'fast-check';
import { expect, test } from 'vitest';
import type { CommitOutcome } from '../../src/client/outbox.ts';
import type { SubscriptionHandle } from '../../src/client/subscription-handle.ts';
import { bearerToken } from '../../src/gateway/auth.ts';
import { type GatewayRig, startRig, type TestClient } from './gateway-rig.ts';
import { type Task, task } from './harness.ts';

const LISTS = ['l1', 'l2'] as const;
const ROWS = 5;
const PLAYERS = 3;

type Step =
  | { readonly kind: 'upsert' | 'guarded'; readonly who: number; readonly row: number; readonly list: number }
  | { readonly kind: 'delete'; readonly who: number; readonly row: number }
  | { readonly kind: 'disconnect' | 'connect' | 'cut' | 'lose-answer' | 'toggle'; readonly who: number }
  | { readonly kind: 'rotate' | 'settle' };

const who = fc.nat(PLAYERS - 1);
const row = fc.nat(ROWS - 1);
const step: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 8,
    arbitrary: fc.record({
      kind: fc.constantFrom('upsert', 'guarded'),
      who,
      row,
      list: fc.nat(LISTS.length - 1),
    }),
  },
  { weight: 3, arbitrary: fc.record({ kind: fc.constant('delete'), who, row }) },
  {
    weight: 6,
    arbitrary: fc.record({
      kind: fc.constantFrom('disconnect', 'connect', 'cut', 'lose-answer', 'toggle'),
      who,
    }),
  },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('rotate') }) },
  { weight: 4, arbitrary: fc.record({ kind: fc.constant('settle') }) },
);

class Player {
  readonly test: TestClient;
  readonly outcomes: Promise<CommitOutcome>[] = [];
  readonly wide: SubscriptionHandle;
  /** Overlaps the wide one. */
  #narrow: SubscriptionHandle | null = null;

  constructor(rig: GatewayRig, partition: string) {
    this.test = rig.client({ token: partition });
    this.wide = this.test.client.subscribe({ table: 'tasks', scopes: { list: LISTS } });
    this.test.client.connect();
  }

  get rows(): Record<string, Task & { readonly version: number }> {
    const { client } = this.test;
    const entries = client
      .rows('tasks')
      .map((held) => [held.id, { ...held, version: client.version('tasks', held.id) }] as const);
    return Object.fromEntries(entries.sort(([a], [b]) => (a < b ? -1 : 1)));
  }

  write(written: Task, baseVersion?: number): void {
    const base = baseVersion === undefined ? {} : { baseVersion };
    const { client } = this.test;
    this.outcomes.push(client.mutate([{ table: 'tasks', op: 'upsert', row: written, ...base }]).settled);
  }

  act(move: Step, serial: number): void {
    const { client, taps } = this.test;
    const rowId = 'row' in move ? `row-${move.row}` : '';
    switch (move.kind) {
      case 'upsert':
        this.write(task(rowId, `write ${serial}`, false, LISTS[move.list]));
        break;
      case 'guarded':
        this.write(task(rowId, `guarded ${serial}`, true, LISTS[move.list]), client.version('tasks', rowId));
        break;
      case 'delete':
        this.outcomes.push(client.mutate([{ table: 'tasks', op: 'delete', rowId }]).settled);
        break;
      case 'disconnect':
        client.disconnect();
        break;
      case 'connect':
        client.connect();
        break;
      case 'cut':
        taps.at(-1)?.terminate();
        break;
      case 'lose-answer':
        this.test.cutAnswers = 1;
        break;
      case 'toggle':
        this.#toggle();
        break;
    }
  }

  #toggle(): void {
    if (this.#narrow === null) {
      this.#narrow = this.test.client.subscribe({ table: 'tasks', scopes: { list: LISTS[0] } });
    } else {
      this.#narrow.unsubscribe();
      this.#narrow = null;
    }
  }
}

async function play(rig: GatewayRig, partition: string, steps: readonly Step[]): Promise<void> {
  const players = Array.from({ length: PLAYERS }, () => new Player(rig, partition));
  await players[0]!.wide.ready;
  for (const [serial, move] of steps.entries()) {
    if (move.kind === 'rotate') await rig.gateway.rotateEpoch(partition);
    else if (move.kind === 'settle') {
      const online = players.filter(({ test: { client } }) => client.status.state === 'live');
      for (const player of online)
        await player.test.until(
          () => player.test.client.status.state !== 'live' || player.test.client.status.pendingCommits === 0,
        );
    } else if ('who' in move) players[move.who]!.act(move, serial);
  }

  for (const { test: own } of players) {
    own.cutAnswers = 0;
    own.client.connect();
  }
  const outcomes = await Promise.all(players.flatMap((player) => player.outcomes));
  for (const outcome of outcomes) {
    // A guarded write may lose, and only for that reason: against another row, or against none.
    if (outcome.status === 'rejected') {
      expect(['sync.version_conflict', 'sync.row_missing']).toContain(outcome.code);
    } else expect(outcome.status).toBe('applied');
  }

  const [first] = players;
  first!.write(task('marker', 'the last commit', true, LISTS[1]));
  const fresh = new Player(rig, partition);
  const all = [...players, fresh];
  for (const { test: own } of all) {
    await own.until(() => {
      const { client } = own;
      return client.get('tasks', 'marker') !== undefined && !client.isPending('tasks', 'marker');
    });
  }
  for (const player of all) expect(player.rows).toEqual(fresh.rows);
  for (const { test: own } of all) await own.client.close();
}

test('property: three clients with edits, losses and rotations converge to the rows of the server', async () => {
  const rig = await startRig({
    authenticate: (request) => {
      const token = bearerToken(request);
      return token === null ? null : { actorId: 'ada', partition: token };
    },
    resolveScopes: () => ({ list: [...LISTS] }),
  });
  let run = 0;
  await fc.assert(
    fc.asyncProperty(fc.array(step, { minLength: 4, maxLength: 30 }), (steps) =>
      play(rig, `run-${run++}`, steps),
    ),
    { numRuns: 30, endOnFailure: true },
  );
}, 120_000);
