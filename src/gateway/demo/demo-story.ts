/** What happens in the demo, in order. */
import type { SentCommit } from '../../client/client.ts';
import type { Clock } from '../../protocol/clock.ts';
import { type DemoLog, formatMs } from './demo-log.ts';
import { DemoFailure, type DemoPlayer, type DemoTask } from './demo-player.ts';

const QUICK_EDITS = 40;

export interface DemoStoryParts {
  readonly ada: DemoPlayer;
  readonly ben: DemoPlayer;
  readonly log: DemoLog;
  readonly clock: Clock;
  readonly idPrefix: string;
}

export interface DemoConflict {
  readonly code: string;
  /** What the server kept, and what came of both in the end. */
  readonly kept: string;
  readonly merged: string;
}

export class DemoStory {
  readonly #parts: DemoStoryParts;
  /** From a write to its sight on the other side. */
  readonly latenciesMs: number[] = [];

  constructor(parts: DemoStoryParts) {
    this.#parts = parts;
  }

  async run(): Promise<DemoConflict> {
    await this.#join();
    await this.#share();
    await this.#quickEdits();
    return this.#meetAgain(await this.#partWays());
  }

  #id(name: string): string {
    return `${this.#parts.idPrefix}${name}`;
  }

  /** Runs `write` on one side and measures until `watcher` shows the task so. */
  async #crossing(
    watcher: DemoPlayer,
    watched: { readonly id: string; readonly holds: (task: DemoTask) => boolean },
    write: () => void,
  ): Promise<number> {
    const { clock } = this.#parts;
    const seen = watcher.sees(watched.id, watched.holds);
    const startMs = clock.monotonicMs();
    write();
    await seen;
    const latencyMs = clock.monotonicMs() - startMs;
    this.latenciesMs.push(latencyMs);
    return latencyMs;
  }

  async #join(): Promise<void> {
    const { ada, ben, log, clock } = this.#parts;
    for (const player of [ada, ben]) {
      const startMs = clock.monotonicMs();
      await player.join();
      log.event(player.name, 'connected and caught up', clock.monotonicMs() - startMs);
    }
  }

  async #share(): Promise<void> {
    const { ada, ben, log } = this.#parts;
    const milk = this.#id('milk');
    const bike = this.#id('bike');
    const milkMs = await this.#crossing(ben, { id: milk, holds: () => true }, () => {
      ada.add(milk, 'Buy oat milk');
    });
    log.event('ada', 'adds "Buy oat milk", and ben sees it', milkMs);
    const bikeMs = await this.#crossing(ada, { id: bike, holds: () => true }, () => {
      ben.add(bike, 'Fix the bike');
    });
    log.event('ben', 'adds "Fix the bike", and ada sees it', bikeMs);
    const doneMs = await this.#crossing(ada, { id: bike, holds: ({ done }) => done }, () => {
      ben.edit(bike, { done: true });
    });
    log.event('ben', 'ticks "Fix the bike", and ada sees it', doneMs);
  }

  async #quickEdits(): Promise<void> {
    const { ada, ben, log } = this.#parts;
    const id = this.#id('counter');
    await this.#crossing(ben, { id, holds: () => true }, () => {
      ada.add(id, 'Count to 0');
    });
    const durationsMs: number[] = [];
    for (let count = 1; count <= QUICK_EDITS; count++) {
      const [writer, watcher] = count % 2 === 0 ? [ada, ben] : [ben, ada];
      const title = `Count to ${count}`;
      durationsMs.push(
        await this.#crossing(watcher, { id, holds: (task) => task.title === title }, () => {
          writer.edit(id, { title });
        }),
      );
    }
    log.event('both', `take turns: ${QUICK_EDITS} edits of one task, median`, medianOf(durationsMs));
  }

  /** Ben's write to a row that ada changes meanwhile. */
  async #partWays(): Promise<SentCommit> {
    const { ada, ben, log } = this.#parts;
    const milk = this.#id('milk');
    // What was written so far must be confirmed, so that the base versions are those of the server.
    await ben.until(() => ben.client.status.pendingCommits === 0 && !ben.client.isPending('tasks', milk));
    ben.client.disconnect();
    log.event('ben', 'goes offline');
    const doomed = ben.edit(milk, { title: 'Buy oat milk, two litres' });
    ben.add(this.#id('plumber'), 'Call the plumber');
    ben.edit(this.#id('bike'), { title: 'Fix the bike (and the bell)' });
    const waiting = ben.client.status.pendingCommits;
    log.event('ben', `edits two tasks and adds one; ${waiting} commits wait`);
    const sent = [
      ada.edit(milk, { title: 'Buy almond milk' }),
      ada.add(this.#id('plants'), 'Water the plants'),
    ];
    for (const { settled } of sent) await settled;
    log.event('ada', 'renames one of the two to "Buy almond milk", adds another');
    return doomed;
  }

  async #meetAgain(doomed: SentCommit): Promise<DemoConflict> {
    const { ada, ben, log, clock } = this.#parts;
    const milk = this.#id('milk');
    const startMs = clock.monotonicMs();
    ben.client.connect();
    await ben.until(() => {
      const { state, pendingCommits } = ben.client.status;
      return state === 'live' && pendingCommits === 0;
    });
    log.event('ben', 'returns; all three commits are answered', clock.monotonicMs() - startMs);
    const outcome = await doomed.settled;
    if (outcome.status !== 'rejected' || outcome.conflict === null) {
      throw new DemoFailure('a write over an unseen version was not refused');
    }
    const { serverRow, serverVersion } = outcome.conflict;
    const kept = String(serverRow.title);
    log.event('server', `refuses one (${outcome.code}): it has "${kept}"`);
    const merged = `${kept}, two litres`;
    const mergedMs = await this.#crossing(ada, { id: milk, holds: ({ title }) => title === merged }, () => {
      ben.edit(milk, { title: merged }, serverVersion);
    });
    log.event('ben', 'merges both into one title, and ada sees it', mergedMs);
    return { code: outcome.code, kept, merged };
  }
}

export function medianOf(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.floor(sorted.length / 2)] ?? 0;
}

export function summaryOf(latenciesMs: readonly number[]): string {
  const slowestMs = Math.max(...latenciesMs);
  return `${latenciesMs.length} edits crossed: median ${formatMs(medianOf(latenciesMs))}, slowest ${formatMs(slowestMs)}.`;
}
