/** The process of version 1, which knows nothing of what is coming: `old-version.ts DATABASE_FILE`. Tells its address to its parent. */
import { createGateway } from '../../src/index.ts';
import { tokens, VERSION_1 } from './app.ts';

const [, , path = ''] = process.argv;
const gateway = await createGateway({ schema: VERSION_1, storage: { path }, ...tokens() });
const { url } = await gateway.listen({ port: 0 });
process.on('disconnect', () => void gateway.close());
process.send?.(url);
