/** `tidegate serve --config examples/host-config.ts`: a configuration with functions of the host. */
import {
  type AuthRequest,
  bearerToken,
  type Identity,
  type RowValidatorInput,
  ValidationRejection,
} from '../src/index.ts';

/** Stands for the host's user database. */
const MEMBERS: Readonly<Record<string, { readonly tenant: string; readonly projects: readonly string[] }>> = {
  ada: { tenant: 'acme', projects: ['p1', 'p2'] },
};

export default {
  schema: './schema.json',
  storage: 'sqlite:../.tidegate/example.db',
  logLevel: 'info',

  authenticate: (request: AuthRequest) => {
    // A real host verifies a signature here.
    const actorId = bearerToken(request);
    const member = actorId === null ? undefined : MEMBERS[actorId];
    return actorId === null || member === undefined ? null : { actorId, partition: member.tenant };
  },

  resolveScopes: ({ actorId }: Identity) => ({ project_id: MEMBERS[actorId]?.projects ?? [] }),

  rowValidators: {
    tasks: ({ op, row }: RowValidatorInput) => {
      if (op === 'upsert' && row?.title === '')
        throw new ValidationRejection('app.title_missing', 'a task needs a title');
    },
  },
};
