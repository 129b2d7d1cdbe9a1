/** Frame order (part 1.3) as two transition tables. Anything that is not listed is a fault. */
import { FRAME_TABLE, type FrameName, type MessageKind } from './frame-table.ts';
import { FRAME_TYPES } from './frames.ts';

export type RequestState = 'start' | 'header' | 'pushing' | 'pulling' | 'ended';
export type ResponseState =
  | 'start'
  | 'header'
  | 'body'
  | 'result'
  | 'section'
  | 'commits'
  | 'segments'
  | 'between'
  | 'failed'
  | 'ended';

type Transitions<S extends string> = Readonly<Record<S, Readonly<Partial<Record<FrameName, S>>>>>;

export const REQUEST_ORDER: Transitions<RequestState> = {
  start: { REQ_HEADER: 'header' },
  header: { PUSH_COMMIT: 'pushing', PULL_HEADER: 'pulling' },
  pushing: { PUSH_COMMIT: 'pushing', PULL_HEADER: 'pulling', END: 'ended' },
  pulling: { SUBSCRIPTION: 'pulling', END: 'ended' },
  ended: {},
};

export const RESPONSE_ORDER: Transitions<ResponseState> = {
  start: { RESP_HEADER: 'header' },
  header: { LEASE: 'body', PUSH_RESULT: 'result', SUB_START: 'section', ERROR: 'failed', END: 'ended' },
  body: { PUSH_RESULT: 'result', SUB_START: 'section', ERROR: 'failed', END: 'ended' },
  result: {
    PUSH_RESULT_DETAILS: 'body',
    PUSH_RESULT: 'result',
    SUB_START: 'section',
    ERROR: 'failed',
    END: 'ended',
  },
  section: {
    COMMIT: 'commits',
    SEGMENT_REF: 'segments',
    SEGMENT_INLINE: 'segments',
    SUB_END: 'between',
    ERROR: 'failed',
  },
  commits: { COMMIT: 'commits', SUB_END: 'between', ERROR: 'failed' },
  segments: { SEGMENT_REF: 'segments', SEGMENT_INLINE: 'segments', SUB_END: 'between', ERROR: 'failed' },
  between: { SUB_START: 'section', ERROR: 'failed', END: 'ended' },
  failed: { END: 'ended' },
  ended: {},
};

/** Where an unknown frame is a fault as well: as the first frame, behind `ERROR` and behind `END` (part 1.2 rule 5). */
const UNKNOWN_REFUSED: ReadonlySet<string> = new Set(['start', 'failed', 'ended']);

/** A state with its successors by type number, so that a step is one index. */
interface Node {
  readonly name: string;
  readonly next: readonly (Node | undefined)[];
}

function compile<S extends string>(order: Transitions<S>): Node {
  const nodes = new Map<string, { name: string; next: (Node | undefined)[] }>();
  for (const name of Object.keys(order)) nodes.set(name, { name, next: new Array(256).fill(undefined) });
  const known = new Set(FRAME_TABLE.map((spec) => spec.type));
  for (const [name, node] of nodes) {
    for (const [frame, target] of Object.entries<S | undefined>(order[name as S])) {
      node.next[FRAME_TYPES[frame as FrameName]] = nodes.get(target!);
    }
    if (UNKNOWN_REFUSED.has(name)) continue;
    for (let type = 0; type < 256; type++) {
      if (!known.has(type)) node.next[type] = node;
    }
  }
  return nodes.get('start')!;
}

const START: Readonly<Record<MessageKind, Node>> = {
  request: compile(REQUEST_ORDER),
  response: compile(RESPONSE_ORDER),
};

/** The place in one message. */
export class FrameOrder {
  #node: Node;

  constructor(kind: MessageKind) {
    this.#node = START[kind];
  }

  /** Name of the state in the tables above. */
  get state(): string {
    return this.#node.name;
  }

  get ended(): boolean {
    return this.#node.name === 'ended';
  }

  /** What is wrong with a frame of this type standing here, or `null` when the step was taken. */
  step(type: number): string | null {
    const next = this.#node.next[type];
    if (next === undefined) return `frame type ${type} may not stand here (${this.#node.name})`;
    this.#node = next;
    return null;
  }
}
