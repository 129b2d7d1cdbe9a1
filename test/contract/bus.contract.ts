/** What every bus owes the hubs (`session/live/bus.ts`). A notice may be lost or late, so tests wait for those that must come. */
import { describe, expect, onTestFinished, test } from 'vitest';
import type { Bus, Notice } from '../../src/session/live/bus.ts';

export interface BusNetwork {
  join(): Promise<Bus>;
  close(): Promise<void>;
}

const marker = (partition: string): Notice => ({ kind: 'resync', partition });

const commits: Notice = {
  kind: 'commits',
  partition: 'p1',
  logEpoch: 'epoch-1',
  head: 7,
  commits: [
    {
      commitSeq: 7,
      createdAtMs: 1_700_000_000_000,
      actorId: 'a',
      clientId: 'c',
      clientCommitId: 'k',
      changes: [
        {
          table: 'tasks',
          rowId: 'r1',
          op: 'upsert',
          rowVersion: 2 ** 52,
          payload: Uint8Array.of(0, 255, 128),
          scopes: { project: 'pröj' },
        },
        { table: 'tasks', rowId: 'r2', op: 'delete', scopes: { project: 'x' } },
      ],
    },
  ],
};

/** Notices as they come, and a way to wait for one. */
function listen(bus: Bus): { readonly notices: Notice[]; until(partition: string): Promise<void> } {
  const notices: Notice[] = [];
  let wake: () => void = () => undefined;
  bus.subscribe((notice) => {
    notices.push(notice);
    wake();
  });
  const until = async (partition: string): Promise<void> => {
    while (!notices.some((notice) => notice.partition === partition)) {
      await new Promise<void>((resolve) => {
        wake = resolve;
      });
    }
  };
  return { notices, until };
}

export function busContract(name: string, startNetwork: () => Promise<BusNetwork>): void {
  const start = async (): Promise<BusNetwork> => {
    const network = await startNetwork();
    onTestFinished(() => network.close());
    return network;
  };

  describe(`bus contract: ${name}`, () => {
    test('a notice reaches every other node, never its own', async () => {
      const network = await start();
      const [one, two, three] = [await network.join(), await network.join(), await network.join()];
      const heard = [one, two, three].map(listen);
      one.announce(marker('from-one'));
      await heard[1]!.until('from-one');
      await heard[2]!.until('from-one');
      two.announce(marker('from-two'));
      await heard[0]!.until('from-two');
      expect(heard[0]!.notices).toEqual([marker('from-two')]);
    });

    test.each<Notice>([
      commits,
      { kind: 'epoch-rotated', partition: 'p1', logEpoch: 'epoch-2' },
      { kind: 'scopes-changed', partition: 'p1', actorId: 'a' },
      { kind: 'actor-revoked', partition: 'p1', actorId: 'a' },
      { kind: 'resync', partition: 'p1' },
    ])('$kind arrives with its content', async (notice) => {
      const network = await start();
      const [one, two] = [await network.join(), await network.join()];
      const heard = listen(two);
      one.announce(notice);
      await heard.until('p1');
      const [received] = heard.notices;
      // Entries that do not fit a bus may be left out; then the receiver reads the log.
      const expected =
        received?.kind === 'commits' && received.commits.length === 0 ? { ...notice, commits: [] } : notice;
      expect(received).toEqual(expected);
    });

    test('announce returns before a receiver runs', async () => {
      const network = await start();
      const [one, two] = [await network.join(), await network.join()];
      const heard = listen(two);
      one.announce(marker('p1'));
      expect(heard.notices).toEqual([]);
      await heard.until('p1');
    });

    test('a receiver that throws hurts neither the announcer nor the other receivers', async () => {
      const network = await start();
      const [one, two] = [await network.join(), await network.join()];
      two.subscribe(() => {
        throw new Error('defect');
      });
      const heard = listen(two);
      one.announce(marker('p1'));
      await heard.until('p1');
      one.announce(marker('p2'));
      await heard.until('p2');
    });

    test('who unsubscribed hears no more, the others do', async () => {
      const network = await start();
      const [one, two] = [await network.join(), await network.join()];
      let calls = 0;
      const count = (): void => {
        calls += 1;
      };
      const unsubscribe = two.subscribe(count);
      two.subscribe(count);
      const heard = listen(two);
      unsubscribe();
      unsubscribe();
      one.announce(marker('p1'));
      await heard.until('p1');
      expect(calls).toBe(1);
    });

    test('a closed node neither hears nor speaks; the others go on', async () => {
      const network = await start();
      const [one, two, three] = [await network.join(), await network.join(), await network.join()];
      const heardByOne = listen(one);
      const heardByThree = listen(three);
      await one.close();
      await one.close();
      one.announce(marker('from-closed'));
      two.announce(marker('from-two'));
      await heardByThree.until('from-two');
      expect(heardByOne.notices).toEqual([]);
      expect(heardByThree.notices).toEqual([marker('from-two')]);
    });

    test('onReconnect can be unsubscribed', async () => {
      const network = await start();
      const bus = await network.join();
      const unsubscribe = bus.onReconnect(() => undefined);
      unsubscribe();
      unsubscribe();
    });
  });
}
