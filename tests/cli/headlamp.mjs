// Stands in for Headlamp: runs the plugin on objects, and prints what it shows and what it asked.
import { readFileSync } from "node:fs";

const { script, objects, answers } = JSON.parse(readFileSync(0, "utf8"));
const sections = [], routes = [], asked = [];
let slots = [], at = 0;

const React = {
  createElement: (type, props, ...children) => ({ type, props: { ...props, children } }),
  useState: (first) => {
    const own = at++;
    slots[own] ??= first;
    return [slots[own], (value) => (slots[own] = value)];
  },
  useEffect: (run) => {
    if (!slots.hasRun) slots.end = run();
    slots.hasRun = true;
  },
};
globalThis.pluginLib = {
  React,
  CommonComponents: { SectionBox: "SectionBox", SimpleTable: "SimpleTable", NameValueTable: "NameValueTable" },
  ApiProxy: {
    request: async (path, params, logsOut) => {
      asked.push({ path, cluster: params.cluster ?? null, logsOut });
      const answer = answers[path.split("?")[0]];
      if (answer === undefined) throw new Error("the server could not find it");
      return answer;
    },
  },
  registerDetailsViewSection: (section) => sections.push(section),
  registerRoute: (route) => routes.push(route),
  registerSidebarEntry: (entry) => routes.push(entry),
};

const tell = (node) => {
  if (node === null || node === undefined || typeof node !== "object") return node ?? null;
  if (typeof node.type === "function") {
    at = 0;
    return tell(node.type(node.props));
  }
  const { children, rows, data, columns, title } = node.props;
  const table = data?.map((row) => columns.map((column) => column.getter(row)));
  return { is: node.type, title, rows: rows ?? table, children: children.map(tell) };
};

async function show(node) {
  slots = [];
  tell(node);
  for (let turn = 0; turn < 20; turn++) await Promise.resolve();
  const shown = tell(node);
  slots.end?.();
  return shown;
}

new Function(readFileSync(script, "utf8"))();
const details = [];
for (const jsonData of objects) details.push(await show(sections[0]({ resource: { jsonData, cluster: "c" } })));
const page = await show(routes.find((route) => route.component).component());
console.log(JSON.stringify({ details, page, asked, routes: routes.map((route) => route.name) }));
