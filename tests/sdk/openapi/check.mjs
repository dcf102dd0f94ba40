// Two independent validators of OpenAPI 3.1 read the document that the argument names.
import { readFileSync } from "node:fs";
import SwaggerParser from "@apidevtools/swagger-parser";
import { createConfig, lintFromString } from "@redocly/openapi-core";

const rules = {};
for (const name of ["struct", "no-unresolved-refs", "operation-operationId-unique", "security-defined", "path-parameters-defined",
                    "no-enum-type-mismatch", "spec-components-invalid-map-name", "no-identical-paths", "operation-parameters-unique"])
  rules[name] = "error";

const source = readFileSync(process.argv[2], "utf8");
const told = { paths: 0, problems: [] };
try {
  told.paths = Object.keys((await SwaggerParser.validate(JSON.parse(source))).paths).length;
} catch (error) {
  told.problems.push(`swagger-parser: ${error.message}`);
}
const config = await createConfig({ extends: ["spec"], rules });
for (const p of await lintFromString({ source, absoluteRef: "openapi.json", config }))
  told.problems.push(`redocly: ${p.ruleId}: ${p.message} at ${p.location?.[0]?.pointer}`);
console.log(JSON.stringify(told));
