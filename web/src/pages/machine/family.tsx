// The machines that a machine was forked from and those forked from it, as a tree.
import { useEffect } from "preact/hooks";
import { machines, machinesWatch } from "../../machines";
import { href } from "../../router";
import type { Machine } from "../../types";
import { Badge } from "../../ui/basics";
import { shown } from "../../ui/format";

const SHOWN_MAX = 200; // forks of one machine that are listed

const parentOf = (m: Machine) => m.metadata?.forked_from;

/** The oldest ancestor that still exists. A loop, which metadata could claim, ends the search. */
function rootOf(m: Machine, all: Map<string, Machine>): Machine {
  const seen = new Set<string>();
  for (let at = m; ; ) {
    seen.add(at.id);
    const parent = all.get(parentOf(at) ?? "");
    if (!parent || seen.has(parent.id)) return at;
    at = parent;
  }
}

interface Node {
  machine: Machine;
  forks: Node[];
}

function treeOf(machine: Machine, all: Machine[], seen = new Set<string>()): Node {
  seen.add(machine.id);
  const forks = all.filter((m) => parentOf(m) === machine.id && !seen.has(m.id));
  return { machine, forks: forks.map((m) => treeOf(m, all, seen)) };
}

function Branch({ node, current }: { node: Node; current: string }) {
  const m = node.machine;
  return (
    <li>
      <a href={href(["machines", m.id])} aria-current={m.id === current ? "page" : undefined}>{shown(m.name ?? m.id)}</a>{" "}
      <Badge kind={m.state}>{m.state}</Badge>
      {node.forks.length > 0 && (
        <ul>
          {node.forks.slice(0, SHOWN_MAX).map((n) => <Branch key={n.machine.id} node={n} current={current} />)}
          {node.forks.length > SHOWN_MAX && <li class="soft">{node.forks.length - SHOWN_MAX} more</li>}
        </ul>
      )}
    </li>
  );
}

export function Family({ machine }: { machine: Machine }) {
  useEffect(machinesWatch, []);
  const all = machines.value ?? [];
  const self = all.find((m) => m.id === machine.id);
  if (!self) return null;
  const tree = treeOf(rootOf(self, new Map(all.map((m) => [m.id, m]))), all);
  if (tree.forks.length === 0) return null;
  return (
    <details class="panel family" open>
      <summary>Forks</summary>
      <ul><Branch node={tree} current={machine.id} /></ul>
    </details>
  );
}
