/**
 * Two clients on one list over real sockets: edits cross with their measured latency, one side goes offline, both edit, one
 * write conflicts, the side returns, both converge.
 */
import { createStaticTokens } from '../auth.ts';
import { DEV_SCHEMA } from '../dev-schema.ts';
import { DEV_TOKENS } from '../dev-tokens.ts';
import { createGateway, type Gateway } from '../gateway.ts';
import { createRandom } from '../random.ts';
import { createRealClock } from '../real-clock.ts';
import { type DemoEvent, DemoLog, type DemoStyle } from './demo-log.ts';
import { DemoFailure, DemoPlayer, type DemoTask } from './demo-player.ts';
import { type DemoConflict, DemoStory, summaryOf } from './demo-story.ts';

export interface DemoOptions {
  readonly write: (text: string) => void;
  /** Default `plain`. */
  readonly style?: DemoStyle;
  /** A running `tidegate dev`. Default: a gateway of the demo's own, on a free port, with its database in memory. */
  readonly url?: string;
}

export interface DemoReport {
  /** Both sides show the same tasks, and everything that was written has its outcome. */
  readonly converged: boolean;
  /** Why not; `null` when converged. */
  readonly failure: string | null;
  readonly events: readonly DemoEvent[];
  /** From each write to its sight on the other side. */
  readonly latenciesMs: readonly number[];
  readonly conflict: DemoConflict | null;
  readonly tasks: { readonly ada: readonly DemoTask[]; readonly ben: readonly DemoTask[] };
}

const ADA_TOKEN = 'dev-ada';
const BEN_TOKEN = 'dev-ben';

/** Takes about a second. Rejects only when no gateway could be started. */
export async function runDemo({ write, style = 'plain', url }: DemoOptions): Promise<DemoReport> {
  const clock = createRealClock();
  const log = new DemoLog(write, style, () => clock.monotonicMs());
  const own = url === undefined ? await startGateway() : null;
  const address = own?.url ?? url ?? '';
  log.title(own === null ? `gateway ${address}` : `gateway ${address}, its own, SQLite in memory`);
  const idPrefix = `demo-${createRandom().id()}-`;
  const shared = { url: address, clock, idPrefix };
  const ada = new DemoPlayer({ ...shared, name: 'ada', token: ADA_TOKEN });
  const ben = new DemoPlayer({ ...shared, name: 'ben', token: BEN_TOKEN });
  try {
    const story = new DemoStory({ ada, ben, log, clock, idPrefix });
    const { conflict, failure } = await tell(story, ada, ben);
    const tasks = { ada: ada.tasks, ben: ben.tasks };
    log.lists(["ada's list", "ben's list"], tasks.ada.map(line), tasks.ben.map(line));
    const { latenciesMs } = story;
    log.verdict(
      failure === null ? 'converged' : 'failed',
      failure ?? `Both sides show the same ${tasks.ada.length} tasks. ${summaryOf(latenciesMs)}`,
    );
    if (own === null && failure === null) await tidyUp(ada);
    return { converged: failure === null, failure, events: log.events, latenciesMs, conflict, tasks };
  } finally {
    await Promise.all([ada.client.close(), ben.client.close()]);
    await own?.gateway.close();
  }
}

async function startGateway(): Promise<{ readonly gateway: Gateway; readonly url: string }> {
  const gateway = await createGateway({
    schema: DEV_SCHEMA,
    storage: { path: ':memory:' },
    ...createStaticTokens(DEV_TOKENS),
  });
  const { url } = await gateway.listen({ port: 0 });
  return { gateway, url };
}

async function tell(
  story: DemoStory,
  ada: DemoPlayer,
  ben: DemoPlayer,
): Promise<{ readonly conflict: DemoConflict | null; readonly failure: string | null }> {
  let conflict: DemoConflict | null = null;
  try {
    conflict = await story.run();
    for (const player of [ada, ben]) {
      await player.until(() => player.client.status.pendingCommits === 0 && sameTasks(ada, ben));
    }
    return { conflict, failure: null };
  } catch (failure) {
    if (!(failure instanceof DemoFailure)) throw failure;
    const difference = sameTasks(ada, ben) ? '' : ' The two sides differ.';
    return { conflict, failure: `${failure.message}.${difference}` };
  }
}

function sameTasks(ada: DemoPlayer, ben: DemoPlayer): boolean {
  return JSON.stringify(ada.tasks) === JSON.stringify(ben.tasks);
}

function line({ title, done }: DemoTask): string {
  return `${done ? '[x]' : '[ ]'} ${title}`;
}

/** A gateway that was there before keeps nothing of the demo. */
async function tidyUp(player: DemoPlayer): Promise<void> {
  const { settled } = player.client.mutate(
    player.tasks.map(({ id }) => ({ table: 'tasks', op: 'delete', rowId: id })),
  );
  await settled;
}
