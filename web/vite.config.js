// The page has no inline script, style or data: URL, so that the policy of the daemon can forbid them.
import { readFileSync, writeFileSync } from "node:fs";
import { gzipSync } from "node:zlib";
import { defineConfig } from "vite";

// The daemon sends the .gz file to each browser that accepts gzip.
const compress = {
  name: "compress",
  writeBundle(options, bundle) {
    for (const name of Object.keys(bundle)) {
      const path = `${options.dir}/${name}`;
      writeFileSync(`${path}.gz`, gzipSync(readFileSync(path), { level: 9 }));
    }
  },
};

export default defineConfig({
  plugins: [compress],
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  build: {
    assetsInlineLimit: 0,
    emptyOutDir: true,
    modulePreload: { polyfill: false },
    target: "es2022",
  },
});
