// What `weft pipeline run modules` checks code with. A repository's own configuration is code and is never loaded.
const rules = `constructor-super for-direction getter-return no-class-assign no-compare-neg-zero no-cond-assign
  no-const-assign no-debugger no-delete-var no-dupe-args no-dupe-class-members no-dupe-else-if no-dupe-keys
  no-duplicate-case no-empty-pattern no-ex-assign no-func-assign no-import-assign no-invalid-regexp
  no-loss-of-precision no-misleading-character-class no-new-native-nonconstructor no-obj-calls no-self-assign
  no-setter-return no-shadow-restricted-names no-sparse-arrays no-this-before-super no-unexpected-multiline
  no-unreachable no-unsafe-finally no-unsafe-negation no-unsafe-optional-chaining no-unused-labels no-useless-catch
  require-yield use-isnan valid-typeof no-eval no-implied-eval no-new-func`.split(/\s+/);

export default [
  { ignores: ["**/node_modules/", "**/bower_components/", "**/vendor/", "**/third_party/", "**/dist/", "**/build/", "**/*.min.js"] },
  {
    files: ["**/*.js", "**/*.mjs", "**/*.cjs", "**/*.jsx"],
    languageOptions: { ecmaVersion: "latest", parserOptions: { ecmaFeatures: { jsx: true } } },
    linterOptions: { noInlineConfig: true, reportUnusedDisableDirectives: "off" },
    rules: { ...Object.fromEntries(rules.map((name) => [name, "error"])), "no-fallthrough": "warn", "no-redeclare": "warn" },
  },
];
