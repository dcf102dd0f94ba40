// The page has no inline script, style or data: URL, so that the policy of the daemon can forbid them.
import { readFileSync, readdirSync, writeFileSync } from "node:fs";
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

// The licences of the packages whose code is in the page, in a file beside it. Some have more than one.
const licensesMore = { "@novnc/novnc": ["docs/LICENSE.MPL-2.0", "vendor/pako/LICENSE"] };
const licenses = {
  name: "licenses",
  writeBundle(options) {
    const { dependencies } = JSON.parse(readFileSync("package.json"));
    const texts = [...Object.keys(dependencies), "@preact/signals-core"].map((name) => {
      const folder = `node_modules/${name}`;
      const first = readdirSync(folder).find((entry) => /^licen[cs]e/i.test(entry));
      const files = [first, ...(licensesMore[name] ?? [])];
      return `${name}\n\n${files.map((file) => readFileSync(`${folder}/${file}`, "utf8")).join("\n\n")}`;
    });
    writeFileSync(`${options.dir}/licenses.txt`, texts.join("\n\n"));
  },
};

export default defineConfig({
  plugins: [compress, licenses],
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  build: {
    assetsInlineLimit: 0,
    emptyOutDir: true,
    modulePreload: { polyfill: false },
    target: "es2022",
  },
});
