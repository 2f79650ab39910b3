// Builds the page into the package of the operators: file names carry hashes of what is in them.
import { createHash } from "node:crypto";
import { readFileSync, readdirSync, rmSync, writeFileSync, mkdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const out = process.argv[2] ?? join(here, "../operators/koord/see/static");
const MOST_BYTES = 100 * 1024;

const result = await build({
  absWorkingDir: here,
  entryPoints: { page: "src/main.tsx", style: "src/style.css" },
  bundle: true,
  minify: true,
  format: "esm",
  target: ["es2022"],
  jsx: "automatic",
  jsxImportSource: "preact",
  charset: "utf8",
  legalComments: "none",
  write: false,
  outdir: "out",
  logLevel: "warning",
});

const files = new Map();
const named = {};
for (const file of result.outputFiles) {
  const [stem, ending] = file.path.split("/").pop().split(".");
  const hash = createHash("sha256").update(file.contents).digest("hex").slice(0, 10);
  named[`${stem}.${ending}`] = `${stem}.${hash}.${ending}`;
  files.set(`${stem}.${hash}.${ending}`, Buffer.from(file.contents));
}
const shell = readFileSync(join(here, "src/index.html"), "utf8");
files.set("index.html", Buffer.from(shell.replace(/\{\{([\w.]+)\}\}/g, (_, name) => named[name])));

const licenses = ["preact", "@preact/signals", "@preact/signals-core"].map((name) => {
  const at = join(here, "node_modules", name);
  const version = JSON.parse(readFileSync(join(at, "package.json"), "utf8")).version;
  return `${name} ${version}\n\n${readFileSync(join(at, "LICENSE"), "utf8").trim()}\n`;
});
const sum = [...files.values()].reduce((total, body) => total + gzipSync(body).length, 0);
if (sum > MOST_BYTES) throw new Error(`the page has ${sum} bytes gzip'd, of at most ${MOST_BYTES}`);
files.set("LICENSES.txt", Buffer.from(licenses.join("\n---\n\n")));

mkdirSync(out, { recursive: true });
for (const name of readdirSync(out)) rmSync(join(out, name));
for (const [name, body] of files) writeFileSync(join(out, name), body);
console.log(`${files.size} files, ${sum} bytes gzip'd`);
